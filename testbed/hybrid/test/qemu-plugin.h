/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the plugin uses of QEMU's header, for test/plugin.c, which stands in for QEMU. */
#ifndef TEST_QEMU_PLUGIN_H
#define TEST_QEMU_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QEMU_PLUGIN_EXPORT
#define QEMU_PLUGIN_VERSION 4

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t; /* here: whether it is a store */
typedef struct {
	struct {
		int smp_vcpus, max_vcpus;
	} system;
} qemu_info_t;

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
struct qemu_plugin_scoreboard;
typedef struct {
	struct qemu_plugin_scoreboard *board;
	size_t offset;
} qemu_plugin_u64;

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_R = 1, QEMU_PLUGIN_MEM_W, QEMU_PLUGIN_MEM_RW };
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64, QEMU_PLUGIN_INLINE_STORE_U64 };
enum qemu_plugin_cond { QEMU_PLUGIN_COND_NE, QEMU_PLUGIN_COND_GE };

typedef void (*qemu_plugin_vcpu_tb_trans_cb_t)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
typedef void (*qemu_plugin_vcpu_udata_cb_t)(unsigned cpu, void *data);
typedef void (*qemu_plugin_vcpu_mem_cb_t)(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address,
					  void *data);

struct qemu_plugin_hybrid_ops { /* see qemu.patch */
	unsigned (*pick)(const bool *runnable, unsigned n, int64_t deadline);
	void (*leave)(unsigned cpu);
	bool (*wake)(unsigned cpu, int by);
	int64_t (*now)(int cpu);
	void (*warp)(int64_t ns);
	bool (*cpuid)(unsigned cpu, uint32_t leaf, uint32_t sub, uint32_t regs[4]);
	bool (*rdmsr)(unsigned cpu, uint32_t msr, uint64_t *val);
	bool (*wrmsr)(unsigned cpu, uint32_t msr, uint64_t val);
	bool (*rdpmc)(unsigned cpu, uint32_t index, uint64_t *val);
	void (*mmu)(unsigned cpu, uint64_t cr3);
	bool (*sensor)(unsigned address, uint8_t command, uint32_t *value);
	bool (*sleep)(unsigned cpu, uint32_t port);
};

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv);

void qemu_plugin_hybrid_register(const struct qemu_plugin_hybrid_ops *ops);
void qemu_plugin_hybrid_end_slice(void);
void qemu_plugin_hybrid_retranslate(void);
void qemu_plugin_hybrid_write(uint64_t address, const void *from, size_t size);
void qemu_plugin_hybrid_pmi(unsigned cpu);
void qemu_plugin_hybrid_thermal(unsigned cpu);
void qemu_plugin_hybrid_gpe(void);

struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t size);
void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *board, unsigned cpu);
#define qemu_plugin_scoreboard_u64_in_struct(board, type, member) \
	((qemu_plugin_u64){ board, offsetof(type, member) })

uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t size);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *hw);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *hw);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_tb_trans_cb_t cb);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb, enum qemu_plugin_op op,
						       qemu_plugin_u64 entry, uint64_t value);
void qemu_plugin_register_vcpu_tb_exec_cond_cb(struct qemu_plugin_tb *tb, qemu_plugin_vcpu_udata_cb_t cb,
					       enum qemu_plugin_cb_flags flags, enum qemu_plugin_cond cond,
					       qemu_plugin_u64 entry, uint64_t value, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, qemu_plugin_vcpu_udata_cb_t cb,
					    enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_plugin_insn *insn,
							 enum qemu_plugin_op op, qemu_plugin_u64 entry,
							 uint64_t value);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, qemu_plugin_vcpu_mem_cb_t cb,
				      enum qemu_plugin_cb_flags flags, enum qemu_plugin_mem_rw rw, void *data);
void qemu_plugin_register_vcpu_mem_inline_per_vcpu(struct qemu_plugin_insn *insn, enum qemu_plugin_mem_rw rw,
						   enum qemu_plugin_op op, qemu_plugin_u64 entry,
						   uint64_t value);

#endif
