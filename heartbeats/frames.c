// SPDX-License-Identifier: MIT
/*
 * A Vulkan layer that beats at each picture that a program shows (docs/goals.md):
 *
 *	SCX_HETERO_FRAMES=1 SCX_HETERO_RATE=60 GAME
 *
 * The loader puts it between a program and the driver. So it also sees programs that ask the device for
 * vkQueuePresentKHR, as DXVK does, and `scx_hetero goal run --beat vulkan` does not.
 *
 * How layers find each other says the loader's "Architecture of the Vulkan Loader Interfaces".
 */
#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#include "scx_hetero_heartbeat.h"

/* The interface of layers that this one speaks. */
#define LAYER_INTERFACE 2

/* What comes next for an instance, or for a device. */
struct next {
	void *key;
	VkInstance instance;
	PFN_vkGetInstanceProcAddr of_instance;
	PFN_vkGetDeviceProcAddr of_device;
	PFN_vkQueuePresentKHR present;
	struct next *more;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct next *all;

/* An instance and its physical devices have the same, and so have a device and its queues. */
static void *key_of(void *handle)
{
	return *(void **)handle;
}

static void add(struct next *next)
{
	pthread_rwlock_wrlock(&lock);
	next->more = all;
	all = next;
	pthread_rwlock_unlock(&lock);
}

/* Stays as long as the instance or device does, which none may use while it is destroyed. */
static struct next *find(void *key)
{
	struct next *next;

	pthread_rwlock_rdlock(&lock);
	for (next = all; next && next->key != key; next = next->more)
		;
	pthread_rwlock_unlock(&lock);
	return next;
}

/* The device, if there is one alone. */
static struct next *only_device(void)
{
	struct next *next, *device = NULL;
	int devices = 0;

	pthread_rwlock_rdlock(&lock);
	for (next = all; next; next = next->more)
		if (next->present) {
			device = next;
			devices++;
		}
	pthread_rwlock_unlock(&lock);
	return devices == 1 ? device : NULL;
}

static void drop(struct next *gone)
{
	struct next **at;

	pthread_rwlock_wrlock(&lock);
	for (at = &all; *at && *at != gone; at = &(*at)->more)
		;
	if (*at)
		*at = gone->more;
	pthread_rwlock_unlock(&lock);
	free(gone);
}

static struct scx_hetero_hb *session;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static void open_session(void)
{
	struct scx_hetero_hb_options options = { .size = sizeof(options), .children = 1 };
	const char *text = getenv("SCX_HETERO_RATE");
	/* Programs have numbers be written as in their user's language. */
	locale_t plain = newlocale(LC_ALL_MASK, "C", NULL);
	char *end = NULL;

	if (text && plain)
		options.rate = strtod_l(text, &end, plain);
	if (plain)
		freelocale(plain);
	errno = EINVAL;
	if (end && end != text && !*end && options.rate > 0)
		session = scx_hetero_hb_open(&options);
	if (!session)
		fprintf(stderr, "scx_hetero: no goal (%s): SCX_HETERO_RATE is '%s', and is to be pictures a second, such as 60\n",
			strerror(errno), text ? text : "");
}

static VKAPI_ATTR VkResult VKAPI_CALL queue_present(VkQueue queue, const VkPresentInfoKHR *info)
{
	struct next *next = find(key_of(queue));
	VkResult result;

	/* A layer above may present by a queue of its own that it has not told the loader of. */
	if (!next)
		next = only_device();
	if (!next || !next->present)
		return VK_ERROR_DEVICE_LOST;
	result = next->present(queue, info);
	if (result == VK_SUCCESS || result == VK_SUBOPTIMAL_KHR) {
		/* Not sooner: a program may make devices and show nothing, or leave that to another process. */
		pthread_once(&opened, open_session);
		scx_hetero_hb_beat(session);
	}
	return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
						      const VkAllocationCallbacks *allocator,
						      VkInstance *instance)
{
	VkLayerInstanceCreateInfo *link = (VkLayerInstanceCreateInfo *)info->pNext;
	PFN_vkCreateInstance create;
	struct next *next;
	VkResult result;

	while (link && (link->sType != VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO ||
			link->function != VK_LAYER_LINK_INFO))
		link = (VkLayerInstanceCreateInfo *)link->pNext;
	if (!link)
		return VK_ERROR_INITIALIZATION_FAILED;
	next = calloc(1, sizeof(*next));
	if (!next)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	next->of_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
	link->u.pLayerInfo = link->u.pLayerInfo->pNext;
	create = (PFN_vkCreateInstance)next->of_instance(NULL, "vkCreateInstance");
	result = create ? create(info, allocator, instance) : VK_ERROR_INITIALIZATION_FAILED;
	if (result != VK_SUCCESS) {
		free(next);
		return result;
	}
	next->instance = *instance;
	next->key = key_of(*instance);
	add(next);
	return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_instance(VkInstance instance,
						   const VkAllocationCallbacks *allocator)
{
	struct next *next = instance ? find(key_of(instance)) : NULL;
	PFN_vkDestroyInstance destroy;

	if (!next)
		return;
	destroy = (PFN_vkDestroyInstance)next->of_instance(instance, "vkDestroyInstance");
	/* Its key may be another's as soon as it is gone. */
	drop(next);
	if (destroy)
		destroy(instance, allocator);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
						    const VkDeviceCreateInfo *info,
						    const VkAllocationCallbacks *allocator,
						    VkDevice *device)
{
	VkLayerDeviceCreateInfo *link = (VkLayerDeviceCreateInfo *)info->pNext;
	struct next *above = find(key_of(physical)), *next;
	PFN_vkCreateDevice create;
	VkResult result;

	while (link && (link->sType != VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO ||
			link->function != VK_LAYER_LINK_INFO))
		link = (VkLayerDeviceCreateInfo *)link->pNext;
	if (!link || !above)
		return VK_ERROR_INITIALIZATION_FAILED;
	next = calloc(1, sizeof(*next));
	if (!next)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	next->of_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
	next->of_device = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
	link->u.pLayerInfo = link->u.pLayerInfo->pNext;
	create = (PFN_vkCreateDevice)next->of_instance(above->instance, "vkCreateDevice");
	result = create ? create(physical, info, allocator, device) : VK_ERROR_INITIALIZATION_FAILED;
	if (result != VK_SUCCESS) {
		free(next);
		return result;
	}
	next->key = key_of(*device);
	next->present = (PFN_vkQueuePresentKHR)next->of_device(*device, "vkQueuePresentKHR");
	add(next);
	return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice device,
						 const VkAllocationCallbacks *allocator)
{
	struct next *next = device ? find(key_of(device)) : NULL;
	PFN_vkDestroyDevice destroy;

	if (!next)
		return;
	destroy = (PFN_vkDestroyDevice)next->of_device(device, "vkDestroyDevice");
	drop(next);
	if (destroy)
		destroy(device, allocator);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device(VkDevice device, const char *name);
static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance(VkInstance instance, const char *name);

struct ours {
	const char *name;
	PFN_vkVoidFunction function;
};

static const struct ours of_devices[] = {
	{ "vkGetDeviceProcAddr", (PFN_vkVoidFunction)get_device },
	{ "vkDestroyDevice", (PFN_vkVoidFunction)destroy_device },
	{ "vkQueuePresentKHR", (PFN_vkVoidFunction)queue_present },
	{ NULL, NULL },
};

static const struct ours of_instances[] = {
	{ "vkGetInstanceProcAddr", (PFN_vkVoidFunction)get_instance },
	{ "vkCreateInstance", (PFN_vkVoidFunction)create_instance },
	{ "vkDestroyInstance", (PFN_vkVoidFunction)destroy_instance },
	{ "vkCreateDevice", (PFN_vkVoidFunction)create_device },
	{ NULL, NULL },
};

static PFN_vkVoidFunction named(const struct ours *ours, const char *name)
{
	for (; ours->name; ours++)
		if (!strcmp(ours->name, name))
			return ours->function;
	return NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device(VkDevice device, const char *name)
{
	struct next *next = find(key_of(device));
	PFN_vkVoidFunction theirs = next ? next->of_device(device, name) : NULL;
	PFN_vkVoidFunction own = named(of_devices, name);

	/* What the device has not, this layer has not. */
	return theirs && own ? own : theirs;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance(VkInstance instance, const char *name)
{
	PFN_vkVoidFunction own = named(of_instances, name), theirs;
	struct next *next;

	if (own || !instance)
		return own;
	next = find(key_of(instance));
	theirs = next ? next->of_instance(instance, name) : NULL;
	own = named(of_devices, name);
	return theirs && own ? own : theirs;
}

/* All that the loader looks for. */
__attribute__((visibility("default"))) VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *interface)
{
	if (interface->sType != LAYER_NEGOTIATE_INTERFACE_STRUCT ||
	    interface->loaderLayerInterfaceVersion < LAYER_INTERFACE)
		return VK_ERROR_INITIALIZATION_FAILED;
	interface->loaderLayerInterfaceVersion = LAYER_INTERFACE;
	interface->pfnGetInstanceProcAddr = get_instance;
	interface->pfnGetDeviceProcAddr = get_device;
	interface->pfnGetPhysicalDeviceProcAddr = NULL;
	return VK_SUCCESS;
}
