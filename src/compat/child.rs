//! The tool in a process of its own: who touches a share whose server is gone, or a disk that
//! hangs, hangs in the kernel, and only another can say so and put back what must be put back.

use super::clock::Pinned;
use crate::error::{Error, Result};
use crate::sys;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Seconds that a call may take, as the child tells its parent; [`FOREVER`] is for a question.
pub type Patience = u16;
pub const USUAL: Patience = 60;
pub const FOREVER: Patience = 0;

/// The child's end: tells the parent that it goes on, and how long the next call may take.
pub struct Pulse {
    pipe: PipeWriter,
    last: Patience,
    when: Instant,
}

impl Pulse {
    /// Twice a second is enough, and wherever the patience changes.
    pub fn beat(&mut self, now: Instant, patience: Patience) {
        if patience != self.last || now.duration_since(self.when) > Duration::from_millis(500) {
            (self.last, self.when) = (patience, now);
            let _ = self.pipe.write(&patience.to_le_bytes()); // a parent that is gone needs none
        }
    }
}

/// Runs `work` in a child, which a signal ends; returns its exit status.
/// # Errors
/// Where no child can be started, and where it hangs or dies.
pub fn run(
    place: &Path,
    pinned: Option<Pinned>,
    work: impl FnOnce(Pulse, Arc<AtomicBool>) -> u8,
) -> Result<u8> {
    let failed = |e: io::Error| Error::new("start", "/proc/self/exe", e);
    let interrupted = Arc::<AtomicBool>::default();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        signal_hook::flag::register(signal as i32, interrupted.clone()).map_err(failed)?;
    }
    let (heard, pipe) = io::pipe().map_err(failed)?;
    let parent = nix::unistd::getpid();
    let Some(child) = sys::fork().map_err(failed)? else {
        drop(heard);
        // So that a parent that is killed leaves nothing behind either.
        let _ = prctl::set_pdeathsig(Signal::SIGTERM);
        let when = Instant::now();
        let status = work(
            Pulse {
                pipe,
                last: FOREVER,
                when,
            },
            interrupted,
        );
        if getppid() != parent {
            drop(pinned);
        }
        std::process::exit(status.into());
    };
    drop(pipe);
    let ended = watch(child, heard, &interrupted);
    ended.map_err(|why| Error::said("wait for", place, why))
}

/// Hears the child out. One that is killed and still there hangs in the kernel: it is left alone.
fn watch(
    child: Pid,
    mut pipe: PipeReader,
    interrupted: &AtomicBool,
) -> std::result::Result<u8, String> {
    let (mut patience, mut when, mut signals) = (USUAL, Instant::now(), 0);
    let mut chunk = [0; 4096];
    loop {
        if interrupted.swap(false, Ordering::Relaxed) {
            signals += 1;
            let _ = kill(child, Signal::SIGTERM); // it may have ended
        }
        let over = patience != FOREVER && when.elapsed() > Duration::from_secs(patience.into());
        if over || signals > 1 {
            let _ = kill(child, Signal::SIGKILL);
            return Err(match over {
                true => format!("no answer within {patience} s; what was made there may be left"),
                false => "given up; what was made there may be left".into(),
            });
        }
        let mut ready = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, PollTimeout::from(500_u16)) != Ok(1) {
            continue; // a signal, or time to look at the clock
        }
        match pipe.read(&mut chunk) {
            Ok(0) => return reap(child),
            Ok(n) if n >= 2 => {
                patience = Patience::from_le_bytes([chunk[n - 2], chunk[n - 1]]);
                when = Instant::now();
            }
            _ => {}
        }
    }
}

fn reap(child: Pid) -> std::result::Result<u8, String> {
    let end = Instant::now() + Duration::from_secs(USUAL.into());
    while Instant::now() < end {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, status)) => return Ok(status as u8),
            Ok(WaitStatus::Signaled(_, signal, _)) => {
                return Err(format!("ended by signal {}", signal as i32));
            }
            Err(error) => return Err(io::Error::from(error).to_string()),
            Ok(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    Err("it does not end".into())
}
