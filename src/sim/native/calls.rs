// SPDX-License-Identifier: GPL-2.0-only
//! What the BPF half calls: each goes to the [`NativeKernel`] that this copy of it belongs to.
//!
//! Every function here is called from C within an operation that the same kernel called, on the same
//! thread; `model` is that kernel, which lives longer than its copy of the BPF half. Only shared
//! references are made of it, and its state is borrowed for no longer than a call takes.

use std::ffi::{CStr, c_char, c_void};

use super::ffi::{self, bpf_iter_scx_dsq, bpf_timer, cpumask, native_calls, task_struct};
use super::kernel::NativeKernel;
use super::task::TaskIndex;
use crate::topology::CpuMask;

/// For [`super::half::NativeHalf::start`].
pub(super) static CALLS: native_calls = native_calls {
    dsq_insert: Some(dsq_insert),
    move_to_local: Some(move_to_local),
    iter_new: Some(iter_new),
    iter_next: Some(iter_next),
    dsq_move: Some(dsq_move),
    nr_queued: Some(nr_queued),
    peek: Some(peek),
    reenq: Some(reenq),
    reenq_local: Some(reenq_local),
    create_dsq: Some(create_dsq),
    set_slice: Some(set_slice),
    kick: Some(kick),
    cpuperf: Some(cpuperf),
    clear_idle: Some(clear_idle),
    pick_idle: Some(pick_idle),
    is_running: Some(is_running),
    perf_read: Some(perf_read),
    timer_start: Some(timer_start),
    record: Some(record),
    read_user: Some(read_user),
    task_from_pid: Some(task_from_pid),
    error: Some(error),
};

/// SAFETY (of all below): see the head of this file.
unsafe fn kernel<'a>(model: *mut c_void) -> &'a NativeKernel {
    unsafe { &*model.cast::<NativeKernel>() }
}

unsafe fn id(p: *const task_struct) -> TaskIndex {
    TaskIndex(unsafe { (*p).native_index })
}

unsafe extern "C" fn dsq_insert(
    model: *mut c_void,
    p: *mut task_struct,
    dsq: u64,
    slice: u64,
    vtime: u64,
    flags: u64,
    by_vtime: bool,
) {
    let (kernel, task) = unsafe { (kernel(model), id(p)) };
    kernel.dsq_insert(task, dsq, slice, by_vtime.then_some(vtime), flags);
}

unsafe extern "C" fn move_to_local(model: *mut c_void, dsq: u64, _flags: u64) -> bool {
    unsafe { kernel(model) }.move_to_local(dsq)
}

unsafe extern "C" fn iter_new(model: *mut c_void, it: *mut bpf_iter_scx_dsq) {
    unsafe { (*it).first_seq = kernel(model).seq_of((*it).dsq) }
}

unsafe extern "C" fn iter_next(model: *mut c_void, it: *mut bpf_iter_scx_dsq) -> *mut task_struct {
    let (kernel, it) = unsafe { (kernel(model), &mut *it) };
    let place = it.started.then_some((it.key, it.seq));
    let Some((place, task)) = kernel.next_in(it.dsq, place, it.first_seq) else {
        return std::ptr::null_mut();
    };
    it.started = true;
    (it.key, it.seq) = place;
    kernel.raw(task)
}

unsafe extern "C" fn dsq_move(
    model: *mut c_void,
    it: *mut bpf_iter_scx_dsq,
    p: *mut task_struct,
    dsq: u64,
    flags: u64,
    by_vtime: bool,
) -> bool {
    let (kernel, it, task) = unsafe { (kernel(model), &mut *it, id(p)) };
    let slice = it.has_slice.then_some(it.slice);
    let vtime = it.has_vtime.then_some(it.vtime);
    (it.has_slice, it.has_vtime) = (false, false);
    kernel.move_between(
        it.dsq,
        it.first_seq,
        task,
        dsq,
        slice,
        vtime,
        flags,
        by_vtime,
    )
}

unsafe extern "C" fn nr_queued(model: *mut c_void, dsq: u64) -> i32 {
    unsafe { kernel(model) }.nr_queued(dsq)
}

unsafe extern "C" fn peek(model: *mut c_void, dsq: u64) -> *mut task_struct {
    let kernel = unsafe { kernel(model) };
    kernel
        .next_in(dsq, None, u64::MAX)
        .map_or(std::ptr::null_mut(), |(_, task)| kernel.raw(task))
}

unsafe extern "C" fn reenq(model: *mut c_void, dsq: u64, _flags: u64) {
    unsafe { kernel(model) }.reenqueue_later(dsq);
}

unsafe extern "C" fn reenq_local(model: *mut c_void) -> u32 {
    unsafe { kernel(model) }.reenqueue_local()
}

unsafe extern "C" fn create_dsq(model: *mut c_void, dsq: u64) -> i32 {
    unsafe { kernel(model) }.create_dsq(dsq)
}

unsafe extern "C" fn set_slice(model: *mut c_void, p: *mut task_struct, slice: u64) {
    // The kernel's own function does no more than this.
    unsafe { (*p).scx.slice = slice }
    let _ = model;
}

unsafe extern "C" fn kick(model: *mut c_void, cpu: i32, flags: u64) {
    unsafe { kernel(model) }.kick(cpu, flags);
}

unsafe extern "C" fn cpuperf(model: *mut c_void, cpu: i32, perf: u32) {
    unsafe { kernel(model) }.cpuperf_set(cpu, perf);
}

unsafe extern "C" fn clear_idle(model: *mut c_void, cpu: i32) -> bool {
    unsafe { kernel(model) }.test_and_clear_idle(cpu)
}

unsafe extern "C" fn pick_idle(model: *mut c_void, cpus: *const cpumask, flags: u64) -> i32 {
    let (kernel, cpus) = unsafe { (kernel(model), CpuMask((*cpus).bits)) };
    kernel.pick_idle(&cpus, flags)
}

unsafe extern "C" fn is_running(model: *mut c_void, p: *const task_struct) -> bool {
    let (kernel, task) = unsafe { (kernel(model), id(p)) };
    kernel.is_running(task)
}

unsafe extern "C" fn perf_read(
    model: *mut c_void,
    index: u64,
    value: *mut ffi::bpf_perf_event_value,
) -> i32 {
    match unsafe { kernel(model) }.perf_read(index) {
        Ok(read) => {
            unsafe { *value = read }
            0
        }
        Err(error) => error,
    }
}

unsafe extern "C" fn timer_start(model: *mut c_void, timer: *mut bpf_timer, ns: u64) -> i32 {
    unsafe { kernel(model) }.timer_start(timer, ns);
    0
}

unsafe extern "C" fn record(model: *mut c_void, map: *mut c_void, data: *const c_void, size: u64) {
    let (kernel, data) = unsafe {
        (
            kernel(model),
            std::slice::from_raw_parts(data.cast::<u8>(), size as usize),
        )
    };
    kernel.record(map, data);
}

unsafe extern "C" fn read_user(
    model: *mut c_void,
    to: *mut c_void,
    size: u32,
    address: u64,
) -> i32 {
    match unsafe { kernel(model) }.read_user(address) {
        Some(word) if size == 4 => {
            unsafe { to.cast::<u32>().write_unaligned(word) }
            0
        }
        _ => -(ffi::EFAULT as i32),
    }
}

unsafe extern "C" fn task_from_pid(model: *mut c_void, pid: i32) -> *mut task_struct {
    let kernel = unsafe { kernel(model) };
    kernel
        .task_of(pid)
        .map_or(std::ptr::null_mut(), |task| kernel.raw(task))
}

unsafe extern "C" fn error(model: *mut c_void, message: *const c_char) {
    let (kernel, message) = unsafe { (kernel(model), CStr::from_ptr(message)) };
    kernel.error(message.to_string_lossy().into_owned());
}
