// SPDX-License-Identifier: MIT
//! What the scheduler advises this process: how many threads finish soonest, how fast they are on which core type, which
//! CPUs have room, and what is in their way. `docs/advice.md` of the project has the whole story.
//!
//! ```
//! use hetero_heartbeats::advice::Subscription;
//!
//! let mut subscription = Subscription::new(None)?;
//! // Now and then, as before a parallel loop. Without a scheduler there is no advice.
//! if let Some(advice) = subscription.news() {
//!     println!("{} threads", advice.threads);
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::marker::{PhantomData, PhantomPinned};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr::{self, NonNull};

/// `struct scx_hetero_advice_record`.
#[repr(C)]
struct Record {
    head: [u32; 16],
    types: [[u32; 4]; 4],
    more: [u8; 384],
    type_of_cpu: [u8; 1024],
    place: [u16; 1024],
    rest: [u8; 512],
}

#[repr(C)]
struct Opaque {
    opaque: [u8; 0],
    pinned: PhantomData<(*mut u8, PhantomPinned)>,
}

unsafe extern "C" {
    fn scx_hetero_advice_new(socket: *const c_char) -> *mut Opaque;
    fn scx_hetero_advice_free(this: *mut Opaque);
    fn scx_hetero_advice_poll(this: *mut Opaque, record: *mut Record) -> c_int;
    fn scx_hetero_advice_say(this: *mut Opaque, kind: u32, number: u32, rate: u64, waited: c_int);
}

/// What contends with this process most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contention {
    /// Nothing that is known of.
    None,
    /// Room in the last-level cache.
    Llc,
    /// Room in a second-level cache that cores share.
    L2,
    /// The way to memory.
    Bandwidth,
    /// The other thread of a core.
    Sibling,
    /// The package's power, or its heat.
    Power,
    /// A lock or barrier.
    Wait,
    /// One that this crate does not know.
    Other(u32),
}

/// What there is of a core type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreTypeAdvice {
    /// CPUs that this process may use.
    pub cpus: u32,
    /// Of them, what others leave.
    pub free: f64,
    /// How fast this process's threads are there, relative to the fastest type.
    pub speed: f64,
}

/// What the scheduler advises.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Threads that finish soonest, each with work by the speed of its core type, or taking work when it has none.
    pub threads: usize,
    /// The same, where all get equal work.
    pub threads_equal: usize,
    /// What `threads` are worth together, in CPUs of the fastest type.
    pub fast_cores: f64,
    /// CPUs that others want.
    pub company: f64,
    /// By core type, fastest first.
    pub types: Vec<CoreTypeAdvice>,
    /// CPUs with most room for `threads`, best first.
    pub place: Vec<u32>,
    /// Core type of each CPU, by number; `None`: there is no such CPU.
    pub type_of_cpu: Vec<Option<usize>>,
    /// What contends with it most, and how sure that is, 0 to 1.
    pub contention: (Contention, f64),
    /// How much slower that makes it; `None` where nothing is known.
    pub slowdown: Option<f64>,
    /// The process that disturbs it most.
    pub culprit: Option<u32>,
}

/// A connection to the scheduler, if one runs. It ends when this is dropped.
#[derive(Debug)]
pub struct Subscription(NonNull<Opaque>);

// SAFETY: it is bound to no thread; its functions take it exclusively.
unsafe impl Send for Subscription {}

impl Subscription {
    /// Makes one. It connects by itself when it is asked for news, and waits for nothing. `socket` is the scheduler's; `None`
    /// is `$SCX_HETERO_ADVICE_SOCKET`, or the usual one.
    ///
    /// # Errors
    /// Memory is short, or a path has a zero byte. That there is no scheduler is no error.
    pub fn new(socket: Option<&Path>) -> io::Result<Self> {
        let socket = socket.map(|path| CString::new(path.as_os_str().as_encoded_bytes()));
        let socket = socket.transpose()?;
        let path = socket.as_ref().map_or(ptr::null(), |path| path.as_ptr());
        // SAFETY: a string that ends, or none; it is copied.
        let made = unsafe { scx_hetero_advice_new(path) };
        let made = NonNull::new(made).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self(made))
    }

    /// What is advised, if that has changed since it was asked for last. Costs a load and a look at the clock
    /// if not.
    pub fn news(&mut self) -> Option<Advice> {
        let mut record = MaybeUninit::<Record>::uninit();
        // SAFETY: the library's own object, and memory of the size that it writes.
        let state = unsafe { scx_hetero_advice_poll(self.0.as_ptr(), record.as_mut_ptr()) };
        if state != 1 {
            return None;
        }
        // SAFETY: it is written whole where the answer is 1, and any bytes are a record.
        Some(unsafe { record.assume_init_ref() }.into())
    }

    fn say(&mut self, kind: u32, number: u32, rate: u64, waited: Option<f64>) {
        let waited = waited.map_or(-1, |part| (part.clamp(0.0, 1.0) * 1000.0) as c_int);
        // SAFETY: the library's own object.
        unsafe { scx_hetero_advice_say(self.0.as_ptr(), kind, number, rate, waited) }
    }

    /// Tells how fast so many threads were, in work per time of any unit, and which part of their time they waited for
    /// each other, where that is known. Ten times a second are enough.
    pub fn tell_time(&mut self, threads: u32, rate: Option<u64>, waited: Option<f64>) {
        self.say(1, threads, rate.unwrap_or(0), waited);
    }

    /// Tells that the program is in another phase, by a number of its own: what it measured before is not said of this
    /// one.
    pub fn tell_phase(&mut self, phase: u32) {
        self.say(2, phase, 0, None);
    }

    /// Tells that a thread, by its id, belongs to the team, or no longer does. Without a word all threads of the process do.
    pub fn tell_member(&mut self, tid: u32, belongs: bool) {
        self.say(if belongs { 3 } else { 4 }, tid, 0, None);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // SAFETY: it is the library's, and is not used after this.
        unsafe { scx_hetero_advice_free(self.0.as_ptr()) }
    }
}

impl From<&Record> for Advice {
    fn from(record: &Record) -> Self {
        let head = &record.head;
        let part = |word: u32| f64::from(word) / 1000.0;
        let types = record.types.iter().take(head[7] as usize);
        let place = record.place.iter().take(head[13] as usize);
        let contention = match head[8] {
            0 => Contention::None,
            1 => Contention::Llc,
            2 => Contention::L2,
            3 => Contention::Bandwidth,
            4 => Contention::Sibling,
            5 => Contention::Power,
            6 => Contention::Wait,
            other => Contention::Other(other),
        };
        let of_cpu = record.type_of_cpu.iter();
        Self {
            threads: head[3] as usize,
            threads_equal: head[4] as usize,
            fast_cores: part(head[5]),
            company: part(head[6]),
            types: types
                .map(|&[cpus, free, speed, _]| CoreTypeAdvice {
                    cpus,
                    free: part(free),
                    speed: part(speed),
                })
                .collect(),
            place: place.map(|&cpu| cpu.into()).collect(),
            type_of_cpu: of_cpu.map(|&of| usize::from(of).checked_sub(1)).collect(),
            contention: (contention, part(head[10])),
            slowdown: (head[9] > 0).then(|| part(head[9])),
            culprit: (head[11] > 0).then_some(head[11]),
        }
    }
}
