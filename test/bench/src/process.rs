//! What a process costs, as the kernel counts it.
//! In: a process id. Out: processor time, memory. Invariant: all its threads are in it, also those that ended.
//! Not here: what it does.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// A process that is looked at from outside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched(i32);

impl Watched {
    pub(crate) fn new(id: u32) -> Self {
        Self(i32::try_from(id).expect("a process id"))
    }

    /// Processor time since its start.
    pub(crate) fn cpu(self) -> Duration {
        let clock = nix::time::clock_getcpuclockid(Pid::from_raw(self.0)).expect("it runs");
        let time = clock_gettime(ClockId::from_raw(clock.as_raw())).expect("it runs");
        Duration::from(time)
    }

    /// The most memory it had at once since its start or the last [`Self::forget_peak`], MiB.
    pub(crate) fn peak(self) -> f64 {
        self.memory("VmHWM:")
    }

    /// The memory it has now, MiB.
    pub(crate) fn resident(self) -> f64 {
        self.memory("VmRSS:")
    }

    fn memory(self, field: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).expect("it runs");
        let line = status.lines().find(|line| line.starts_with(field));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        let kib: u32 = kib
            .and_then(|text| text.parse().ok())
            .expect("memory in KiB");
        f64::from(kib) / 1024.0
    }

    pub(crate) fn forget_peak(self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.0), "5").expect("it runs");
    }
}
