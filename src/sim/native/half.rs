// SPDX-License-Identifier: GPL-2.0-only
//! One loaded copy of the natively compiled BPF half.

use std::ffi::{CString, c_void};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, ensure};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::ffi;
use crate::agent::Allotment;
use crate::bpf::{intf, types};
use crate::carried::Heir;
use crate::scheduler::encode;
use hetero_core::goals::SessionPlace;

const MAX_SLOTS: usize = intf::hetero_consts_MAX_SLOTS as usize;
const MAX_SESSIONS: usize = intf::hetero_consts_MAX_SESSIONS as usize;

/// The shared object that `build.rs` makes of `src/bpf/` and the shim.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/half.so"));

/// Tests also try others: `NATIVE_HALF` names one that is compiled with a sanitizer, or of which
/// something was taken out (`testbed/native-half`).
fn object() -> &'static [u8] {
    #[cfg(test)]
    {
        static OTHER: std::sync::OnceLock<Option<Vec<u8>>> = std::sync::OnceLock::new();
        let read = || {
            std::env::var_os("NATIVE_HALF").map(|path| std::fs::read(path).expect("NATIVE_HALF"))
        };
        if let Some(other) = OTHER.get_or_init(read) {
            return other;
        }
    }
    OBJECT
}

/// One BPF half with memory of its own. The loader knows objects by their inode, so each copy is a
/// file of its own, in memory.
pub struct NativeHalf {
    /// What the kernel's model calls.
    pub(super) ops: *const ffi::sched_ext_ops,
    start: unsafe extern "C" fn(u32) -> bool,
    stop: unsafe extern "C" fn(),
    poke: unsafe extern "C" fn(*const c_void, *const c_void, u64),
    pub(super) fire: unsafe extern "C" fn(*mut ffi::bpf_timer),
    pub(super) forget_task: unsafe extern "C" fn(*mut ffi::task_struct),
    pub(super) forget_cgroup: unsafe extern "C" fn(*mut ffi::cgroup),
    apply: unsafe extern "C" fn(*mut c_void) -> i32,
    register_spin: unsafe extern "C" fn(*mut intf::spin_request) -> i32,
    join_session: unsafe extern "C" fn(*mut intf::session_request) -> i32,
    maps: *mut ffi::native_map,
    nr_maps: usize,
    started: bool,
    library: Library,
    /// Open as long as the object is loaded: its path is by this number, and no other copy may get it.
    _file: File,
}

impl NativeHalf {
    /// Loads another copy. Nothing of it runs before [`NativeHalf::start`].
    ///
    /// # Errors
    /// If the kernel refuses memory that can be executed.
    pub fn load() -> Result<Self> {
        let file = executable_memory().context("no memory for a copy of the BPF half")?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // SAFETY: the object is ours; it has no constructors, and what it needs comes with libc.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }
            .context("the native BPF half cannot be loaded")?;
        // SAFETY: names and types are those of native.h, half.c and the BPF half, which bindgen reads.
        unsafe {
            Ok(Self {
                ops: address(&library, "hetero_ops")?.cast(),
                start: *library.get(b"native_start\0")?,
                stop: *library.get(b"native_stop\0")?,
                poke: *library.get(b"native_poke\0")?,
                fire: *library.get(b"native_fire\0")?,
                forget_task: *library.get(b"native_forget_task\0")?,
                forget_cgroup: *library.get(b"native_forget_cgroup\0")?,
                apply: *library.get(b"apply_actions\0")?,
                register_spin: *library.get(b"register_spin\0")?,
                join_session: *library.get(b"join_session\0")?,
                maps: address(&library, "native_maps")?.cast(),
                nr_maps: *address(&library, "nr_native_maps")?.cast::<u32>() as usize,
                started: false,
                library,
                _file: file,
            })
        }
    }

    /// The address of a global variable of the BPF half (or of a function that is not static).
    /// `T` is its type: read the C before you write it.
    ///
    /// # Panics
    /// If there is none of that name.
    pub fn global<T>(&self, name: &str) -> *mut T {
        match address(&self.library, name) {
            Ok(address) => address.cast(),
            Err(error) => panic!("{error:#}"),
        }
    }

    /// Reads a global variable.
    pub fn get<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the caller names its type; it lies in this copy, which runs on this thread only.
        unsafe { self.global::<T>(name).read() }
    }

    /// Writes a global variable, also one that is read-only to the BPF half, as the agent writes
    /// its rodata before loading.
    pub fn set<T: Copy>(&self, name: &str, value: T) {
        let to = self.global::<T>(name);
        // SAFETY: as in get(); native_poke() makes the pages writable first.
        unsafe { (self.poke)(to.cast(), (&raw const value).cast(), size_of::<T>() as u64) }
    }

    /// Writes one element of an array.
    pub fn set_at<T: Copy>(&self, name: &str, index: usize, value: T) {
        // SAFETY: as in set(); callers index within the C array.
        unsafe {
            let to = self.global::<T>(name).add(index);
            (self.poke)(to.cast(), (&raw const value).cast(), size_of::<T>() as u64);
        }
    }

    /// Changes how many elements a map has, before [`NativeHalf::start`].
    ///
    /// # Panics
    /// If there is no such map.
    pub fn resize(&mut self, map: &str, entries: u32) {
        // SAFETY: the array has so many elements, and nothing else refers to it now.
        let maps = unsafe { std::slice::from_raw_parts_mut(self.maps, self.nr_maps) };
        let map = maps.iter_mut().find(|m| {
            // SAFETY: names are literals in half.c.
            unsafe { std::ffi::CStr::from_ptr(m.name) }.to_str() == Ok(map)
        });
        map.expect("a map of this name").entries = entries;
    }

    /// Makes the maps, for a machine of so many CPUs, and says where the model is.
    pub(super) fn start(
        &mut self,
        nr_cpus: u32,
        here: *mut ffi::native_here,
        calls: *const ffi::native_calls,
        model: *mut c_void,
    ) -> Result<()> {
        let native = self.global::<ffi::native>("native");
        // SAFETY: it is the shim's variable; `here` and `model` live as long as this copy.
        unsafe {
            *native = ffi::native { here, calls, model };
            self.started = true;
            ensure!((self.start)(nr_cpus), "no memory for the maps");
        }
        Ok(())
    }

    /// The operations.
    pub(super) fn ops(&self) -> &ffi::sched_ext_ops {
        // SAFETY: a global variable of the object, which nothing writes.
        unsafe { &*self.ops }
    }

    /// The table of tasks, and how many slots of it were ever taken; for
    /// [`crate::table::TableReader`].
    pub fn slots(&self) -> (&[types::task_slot], usize) {
        // SAFETY: an array of so many, of the type that both bindings are made from. The agent reads
        // it while no operation runs.
        let slots = unsafe { std::slice::from_raw_parts(self.global("slots"), MAX_SLOTS) };
        (slots, self.get::<u32>("nr_slots_used") as usize)
    }

    /// The table of sessions, and how many of it are in use.
    #[expect(
        clippy::mut_from_ref,
        reason = "the object's memory, which the agent writes while no operation runs"
    )]
    fn sessions(&self) -> (&mut [types::goal_session], &mut u32) {
        // SAFETY: an array of so many, and a u32; no operation runs, and no other reference is kept.
        unsafe {
            let sessions = std::slice::from_raw_parts_mut(self.global("sessions"), MAX_SESSIONS);
            (sessions, &mut *self.global("nr_sessions"))
        }
    }

    /// As the agent allots CPU time to a session.
    pub fn allot(&self, session: SessionPlace, allotment: Allotment) {
        let (sessions, nr_sessions) = self.sessions();
        encode::allot(sessions, nr_sessions, session, allotment);
    }

    /// What a session has spent of its allotments, ns.
    pub fn spent_ns(&self, session: SessionPlace) -> u64 {
        let (sessions, _) = self.sessions();
        sessions[session.place()].spent_ns
    }

    /// Until when what a session has spent uses its allotment up, ns.
    #[cfg(test)]
    pub(super) fn paid_until(&self, session: SessionPlace) -> u64 {
        let (sessions, _) = self.sessions();
        sessions[session.place()].paid_until
    }

    // Maps, as the agent reads and writes them: of u32, by u32.

    /// Appends to a queue.
    pub(super) fn push(&self, map: &str, value: u32) {
        type Push = unsafe extern "C" fn(*mut u8, *const u32, u64) -> i64;
        let push = self.global::<c_void>("bpf_map_push_elem");
        // SAFETY: the shim's function of that name, and a map of the BPF half of so large values.
        unsafe {
            let push: Push = std::mem::transmute(push);
            push(self.global(map), &raw const value, 0);
        }
    }

    /// Puts a value into a hash map.
    ///
    /// # Errors
    /// It is full.
    pub(super) fn put(&self, map: &str, key: u32, value: u32) -> Result<()> {
        type Update = unsafe extern "C" fn(*mut u8, *const u32, *const u32, u64) -> i64;
        let update = self.global::<c_void>("bpf_map_update_elem");
        // SAFETY: as above.
        let err = unsafe {
            let update: Update = std::mem::transmute(update);
            update(self.global(map), &raw const key, &raw const value, 0)
        };
        ensure!(err == 0, "{map}: {err}");
        Ok(())
    }

    /// Hands a model's forest over.
    ///
    /// # Panics
    /// If there is no room for so many.
    #[cfg(test)]
    pub(super) fn hand_over(&self, which: usize, forest: &crate::ml::forest::Forest) {
        use crate::ml::forest::Forest;
        type Lookup = unsafe extern "C" fn(*mut u8, *const u32) -> *mut Forest;
        let lookup = self.global::<c_void>("bpf_map_lookup_elem");
        let which = which as u32;
        // SAFETY: as above; a forest is laid out as the map's values are, and no operation runs.
        unsafe {
            let lookup: Lookup = std::mem::transmute(lookup);
            let to = lookup(self.global("forests"), &raw const which);
            *to.as_mut().expect("room for a forest") = forest.clone();
        }
    }

    /// What a hash map has by this key.
    pub(super) fn find(&self, map: &str, key: u32) -> Option<u32> {
        type Lookup = unsafe extern "C" fn(*mut u8, *const u32) -> *const u32;
        let lookup = self.global::<c_void>("bpf_map_lookup_elem");
        // SAFETY: as above.
        unsafe {
            let lookup: Lookup = std::mem::transmute(lookup);
            lookup(self.global(map), &raw const key).as_ref().copied()
        }
    }

    /// Deletes it.
    pub(super) fn delete(&self, map: &str, key: u32) {
        type Delete = unsafe extern "C" fn(*mut u8, *const u32) -> i64;
        let delete = self.global::<c_void>("bpf_map_delete_elem");
        // SAFETY: as above.
        unsafe {
            let delete: Delete = std::mem::transmute(delete);
            delete(self.global(map), &raw const key);
        }
    }

    /// Applies a batch of at most [`intf::hetero_consts_MAX_ACTIONS`] actions as the agent does, and
    /// returns them with their results. Runs with what the model says of where it is.
    pub(super) fn apply(&self, actions: &[types::action]) -> Vec<types::action> {
        let batch = self.global::<types::action_batch>("action_batch");
        let nr = actions.len().min(intf::hetero_consts_MAX_ACTIONS as usize);
        // SAFETY: the batch is a global variable of the object, with room for so many.
        unsafe {
            (*batch).nr = nr as u32;
            (&mut (*batch).actions)[..nr].copy_from_slice(&actions[..nr]);
            (self.apply)(std::ptr::null_mut());
            (&(*batch).actions)[..nr].to_vec()
        }
    }

    /// Registers the word by which a thread says that it spins. The error is the kernel's.
    pub(super) fn register_spin(&self, mut request: intf::spin_request) -> i32 {
        // SAFETY: the program only reads the request.
        unsafe { (self.register_spin)(&raw mut request) }
    }

    /// A thread belongs to a session from now on. The error is the kernel's.
    pub(super) fn join_session(&self, mut request: intf::session_request) -> i32 {
        // SAFETY: as above.
        unsafe { (self.join_session)(&raw mut request) }
    }
}

impl Heir for NativeHalf {
    fn table(&mut self) -> &mut [types::task_slot] {
        // SAFETY: as in Half::slots(); the BPF half writes it, too, and does not run now.
        unsafe { std::slice::from_raw_parts_mut(self.global("slots"), MAX_SLOTS) }
    }

    fn set_totals(&mut self, slots_used: u32, max_progress: u64) {
        self.set("nr_slots_used", slots_used);
        self.set("max_progress", max_progress);
    }

    fn set_carried(&mut self, nr: u32) {
        self.set("nr_carried", nr);
    }

    fn give_free(&mut self, slot: u32) -> Result<()> {
        self.push("free_slots", slot);
        Ok(())
    }

    fn give_carried(&mut self, tid: u32, slot: u32) -> Result<()> {
        self.put("carried_slots", tid, slot)
    }

    fn take_unclaimed(&mut self) -> Result<Vec<u32>> {
        let (slots, used) = self.slots();
        // The model's hash maps cannot be iterated over: each is asked for.
        let unclaimed = slots[..used.min(slots.len())].iter().filter_map(|slot| {
            let index = self.find("carried_slots", slot.tid)?;
            self.delete("carried_slots", slot.tid);
            Some(index)
        });
        Ok(unclaimed.collect())
    }
}

impl Drop for NativeHalf {
    fn drop(&mut self) {
        if self.started {
            // SAFETY: nothing runs in it any more, and the maps are not used after this.
            unsafe { (self.stop)() }
        }
    }
}

fn address(library: &Library, name: &str) -> Result<*mut c_void> {
    let c_name = CString::new(name)?;
    // SAFETY: only the address is taken.
    let symbol = unsafe { library.get::<*mut c_void>(c_name.as_bytes_with_nul()) };
    let symbol = symbol.with_context(|| format!("the BPF half has no global {name}"))?;
    Ok(*symbol)
}

fn executable_memory() -> Result<File> {
    // MFD_EXEC, which the library does not know yet; nor does Linux before 6.3, where it is implied.
    let executable = MFdFlags::MFD_CLOEXEC | MFdFlags::from_bits_retain(0x10);
    let name = "scx_hetero-bpf";
    let fd =
        memfd_create(name, executable).or_else(|_| memfd_create(name, MFdFlags::MFD_CLOEXEC))?;
    let mut file = File::from(fd);
    file.write_all(object())?;
    Ok(file)
}
