//! A fill on a live system: its directory, its files, the two passes over them.

use super::tally::Tally;
use super::{ERRORS, FLOOR, Fill, Parts, Troubles, read_part, sample_is_bad, write_part};
use crate::error::{Error, printable_path};
use crate::probe::capacity::live;
use crate::probe::extents::{self, Extent};
use crate::probe::fat;
use crate::probe::io::{Counters, MIB, Pace, first_bad_sector, read_exact};
use crate::probe::job::Context;
use crate::probe::pattern::{BLOCK, Random};
use crate::probe::place::Place;
use crate::probe::{Fault, FaultKind, Message, Probe, Proved, Reason, Stop, scratch};
use crate::sys::Buffer;
use nix::fcntl::{Flock, FlockArg, OFlag, PosixFadviseAdvice, posix_fadvise};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The directory of a fill, where a run may write.
pub const NAME: &str = ".storage-selftest.fill";
/// Writes that the page cache takes are flushed after so many bytes.
const FLUSH: u64 = 16 * MIB;
/// So much is written once more before anything is read: it pushes what came last out of a
/// memory in front of the disk, or a fake's last blocks would pass for kept.
const AGAIN: u64 = 256 * MIB;
/// Seconds that a slow start may take before the floor holds.
const PATIENCE: f64 = 120.0;

/// The directory, held: nobody else gives its space back meanwhile.
pub struct Held(Flock<File>);

impl Held {
    /// # Errors
    /// `EWOULDBLOCK` where another run works in it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits())
            .open(path)?;
        let lock = Flock::lock(directory, FlockArg::LockExclusiveNonblock);
        Ok(Self(lock.map_err(|(_, errno)| errno)?))
    }

    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    /// The directory itself.
    pub fn file(&self) -> &File {
        &self.0
    }

    /// Where its file number `n` is.
    pub fn part(&self, n: u64) -> PathBuf {
        self.path().join(format!("{n:04}"))
    }

    /// Removes the parts from number `from` on; returns their bytes.
    fn remove(&self, from: u64, removing: impl FnMut()) -> io::Result<u64> {
        self.remove_if(|n| n >= from, removing)
    }

    /// Removes the files of these numbers; returns their bytes.
    /// # Errors
    /// Of the first one that cannot be removed.
    pub fn remove_if(
        &self,
        which: impl Fn(u64) -> bool,
        mut removing: impl FnMut(),
    ) -> io::Result<u64> {
        let mut bytes = 0;
        for entry in fs::read_dir(self.path())? {
            let entry = entry?;
            let (name, meta) = (entry.file_name(), fs::symlink_metadata(entry.path())?);
            let number = name.to_str().filter(|name| name.len() == 4);
            let number = number.and_then(|name| name.parse::<u64>().ok());
            // A file of ours and of nobody else.
            if number.is_some_and(&which) && meta.is_file() && meta.nlink() == 1 {
                fs::remove_file(entry.path())?;
                bytes += meta.len();
                removing();
            }
        }
        Ok(bytes)
    }

    /// Bytes of part `n`, where it is a file of ours.
    fn bytes(&self, n: u64) -> Option<u64> {
        let meta = fs::symlink_metadata(self.part(n)).ok()?;
        (meta.is_file() && meta.nlink() == 1).then_some(meta.len())
    }
}

/// Gives back what a run left in the directory `path`; returns its bytes, 0 where there was nothing
/// or another run still works on it.
/// # Errors
/// Where there is something and it cannot be removed.
pub fn give_back(path: &Path) -> crate::error::Result<u64> {
    let Ok(held) = Held::open(path) else {
        return Ok(0);
    };
    let removed = held.remove(0, || {}).and_then(|bytes| {
        fs::remove_dir(path)?;
        Ok(bytes)
    });
    removed.map_err(|e| Error::new("remove", path, e))
}

/// A part that is open.
struct Open {
    n: u64,
    file: File,
    direct: bool,
    /// Where it lies, once somebody asked.
    extents: Option<Vec<Extent>>,
}

struct Files<'a, 'b> {
    context: &'a mut Context<'b>,
    place: &'a Place,
    held: Held,
    open: Option<Open>,
    pace: Pace,
    /// Time on the disk for the present part.
    busy: Duration,
    /// MB/s of the last whole part.
    last: f64,
    start: Instant,
    pass: Pass,
    told: Instant,
    /// Why no more is to be done.
    stop: Option<Stop>,
}

/// Bytes of the present pass.
#[derive(Default)]
struct Pass {
    read: bool,
    done: u64,
    /// Done by this run in all its passes, for the floor.
    here: u64,
    all: u64,
    part: u64,
}

impl Files<'_, '_> {
    fn part(&mut self, n: u64, new: bool) -> io::Result<&mut Open> {
        if self.open.as_ref().is_none_or(|open| open.n != n) {
            let (file, direct) = scratch::open(&self.held.part(n), &self.place.fs_type, new)?;
            self.open = Some(Open {
                n,
                file,
                direct,
                extents: None,
            });
        }
        self.open.as_mut().ok_or(io::ErrorKind::NotFound.into())
    }

    /// One operation of `bytes` ended after `took`: leaves room for others, tells, and sees that
    /// it is not slower than the floor.
    fn worked(&mut self, bytes: u64, took: Duration) -> io::Result<()> {
        self.busy += took;
        self.pass.done += bytes;
        self.pass.here += bytes;
        self.pass.part += bytes;
        if self.pace.due(took) {
            self.pace.pause();
        }
        if self.told.elapsed() >= Duration::from_millis(500) {
            self.progress();
        }
        let allowed = PATIENCE + self.pass.here as f64 / FLOOR as f64;
        if self.start.elapsed().as_secs_f64() > allowed {
            let detail = "slower than 1 MB/s, so it was given up".into();
            self.stop = Some(Stop::NotMeasured(Reason::Time, detail));
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    fn progress(&mut self) {
        self.told = Instant::now();
        let pass = &self.pass;
        let mb_s = match pass.part {
            0 => self.last,
            _ => self.rate(),
        };
        (self.context.tell)(Message::Progress {
            read: pass.read,
            done: pass.done,
            all: pass.all,
            mb_s,
        });
    }

    /// Bytes that may still be written.
    fn room(&self) -> io::Result<u64> {
        let free = scratch::space(&self.held.path())?.free;
        Ok(free.saturating_sub(self.place.reserve) >> 20 << 20)
    }

    fn begin_part(&mut self) {
        (self.busy, self.pass.part) = (Duration::ZERO, 0);
        self.progress();
    }

    /// Tells the rate of a part, or 0 where it is wrong; returns it.
    fn part_ended(&mut self, right: bool) -> f64 {
        self.last = self.rate().max(1e-3);
        let mb_s = if right { self.last } else { 0.0 };
        let read = self.pass.read;
        (self.context.tell)(Message::Filled { read, mb_s });
        mb_s
    }
}

impl Parts for Files<'_, '_> {
    fn write(&mut self, n: u64, offset: u64, data: &[u8]) -> io::Result<bool> {
        // Half of the reserve is for what others write meanwhile.
        if offset.is_multiple_of(64 * MIB)
            && scratch::space(&self.held.path())?.free < self.place.reserve / 2
        {
            return Ok(false);
        }
        if !self.context.spend(data.len() as u64) {
            return Ok(false);
        }
        let start = Instant::now();
        let open = self.part(n, false)?;
        match open.file.write_all_at(data, offset) {
            Err(error) if full(&error) => return Ok(false),
            written => written?,
        }
        if !open.direct && (offset + MIB).is_multiple_of(FLUSH) {
            open.file.sync_data()?;
        }
        self.worked(data.len() as u64, start.elapsed())?;
        Ok(true)
    }

    fn read(&mut self, n: u64, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = Instant::now();
        let open = self.part(n, false)?;
        read_exact(&open.file, buffer, offset)?;
        match buffer.len() {
            BLOCK => Ok(()), // a sample, which is no part of a pass
            bytes => self.worked(bytes as u64, start.elapsed()),
        }
    }

    fn first_bad(&mut self, n: u64, offset: u64, buffer: &mut [u8]) -> io::Result<Option<u64>> {
        if self.stop.is_some() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.progress();
        let until = Instant::now() + Duration::from_secs(60);
        let block = self.context.job.block() as usize;
        let open = self.part(n, false)?;
        let sector = first_bad_sector(&open.file, buffer, offset, block, until);
        Ok(sector.map(|sector| sector * 512))
    }

    fn address(&mut self, n: u64, offset: u64) -> Option<u64> {
        let path = self.place.directory.join(NAME).join(format!("{n:04}"));
        let (fs_type, known) = (self.place.fs_type.clone(), self.part(n, false).ok()?);
        if known.extents.is_none() {
            let file = known.file.try_clone().ok()?;
            let (disk, job) = (&self.context.disk, &self.context.job);
            let found = match fs_type.as_str() {
                "vfat" | "exfat" if self.context.whole_disk => fat::lies(disk, job, &path),
                _ => extents::of(&file, &fs_type, &job.sys),
            };
            self.part(n, false).ok()?.extents = Some(found.unwrap_or_default());
        }
        extents::on_disk(self.part(n, false).ok()?.extents.as_deref()?, offset)
    }
}

fn full(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(code, Some(nix::libc::ENOSPC | nix::libc::EDQUOT))
}

/// Fills the free space of `place`, or goes on with what an earlier run left there; tells what it
/// proved and gives the space back.
pub fn run(context: &mut Context, place: &Place) {
    (context.tell)(Message::Started(Probe::Fill));
    match filled(context, place) {
        Ok(sentence) => (context.tell)(Message::Proved(Proved {
            probe: Probe::Fill,
            sentence,
        })),
        Err(Stop::Fault(fault)) => (context.tell)(Message::Fault(fault)),
        Err(Stop::NotMeasured(reason, detail)) => {
            context.not_measured(Probe::Fill, reason, detail);
        }
    }
    let plan = context.job.plan.clone();
    context.budget.restart(&plan);
}

fn filled(context: &mut Context, place: &Place) -> Result<String, Stop> {
    let path = place.directory.join(NAME);
    let failed = |context: &Context, e: io::Error| {
        context.stop(Probe::Fill, &e, &format!("open {}", printable_path(&path)))
    };
    let made = DirBuilder::new().mode(0o700).create(&path);
    let exists = |e: &io::Error| e.kind() == io::ErrorKind::AlreadyExists;
    if let Some(error) = made.err().filter(|e| !exists(e)) {
        return Err(failed(context, error));
    }
    let held = Held::open(&path).map_err(|e| failed(context, e))?;
    let mut files = Files {
        context,
        place,
        held,
        open: None,
        pace: Pace::new(),
        busy: Duration::ZERO,
        last: 0.0,
        start: Instant::now(),
        pass: Pass::default(),
        told: Instant::now(),
        stop: None,
    };
    let prepared = files.prepare(&path);
    let mut fill = prepared.map_err(|e| failed(files.context, e))?;
    let ended = files.passes(&mut fill);
    if let Err(Stop::NotMeasured(Reason::DeviceGone, _)) = ended {
        return ended; // its files are as they were, should it come back
    }
    files.open = None;
    let removed = files
        .held
        .remove(0, || {
            let (read, done, all, mb_s) = (true, 0, 0, 0.0);
            (files.context.tell)(Message::Progress {
                read,
                done,
                all,
                mb_s,
            });
        })
        .and_then(|_| fs::remove_dir(&path));
    match removed {
        Ok(()) => (files.context.tell)(Message::Emptied {}),
        Err(error) => log::error!("{}", Error::new("remove", &path, error)),
    }
    ended
}

impl Files<'_, '_> {
    /// The fill that is to be done: what was left where it is whole, or a new one.
    fn prepare(&mut self, path: &Path) -> io::Result<Fill> {
        let known = self.context.job.fill.take();
        let known = known.filter(|known| self.is_there(known));
        let limit = self.context.job.plan.fill;
        if let Some(mut fill) = known {
            // Half a part is no part.
            self.held.remove(fill.written.len() as u64, || {})?;
            let there: u64 = self.bytes_of(&fill);
            if fill.read.is_empty() {
                fill.bytes = fill.bytes.min(there + self.room()?).min(limit.max(there));
            }
            fill.read.truncate(fill.right());
            fill.passed = false;
            fill.directory = path.to_path_buf();
            return Ok(fill);
        }
        self.held.remove(0, || {})?;
        let mut fill = Fill::new(self.room()?.min(limit), self.context.job.seed ^ 5);
        fill.directory = path.to_path_buf();
        Ok(fill)
    }

    fn bytes_of(&self, fill: &Fill) -> u64 {
        let parts = 0..fill.written.len() as u64;
        parts.filter_map(|n| self.held.bytes(n)).sum()
    }

    /// Whether every part that was written is there, the last one maybe shorter.
    fn is_there(&self, fill: &Fill) -> bool {
        let parts = fill.written.len() as u64;
        fill.part > 0
            && fill.part.is_multiple_of(MIB)
            && (0..parts).all(|n| {
                self.held.bytes(n).is_some_and(|bytes| {
                    bytes == fill.part
                        || n + 1 == parts
                            && bytes.is_multiple_of(MIB)
                            && (MIB..fill.part).contains(&bytes)
                })
            })
    }

    fn passes(&mut self, fill: &mut Fill) -> Result<String, Stop> {
        if fill.bytes < 4 * MIB {
            let detail = format!(
                "{} MiB may be written, which is too little to say anything",
                fill.bytes >> 20
            );
            return Err(Stop::NotMeasured(Reason::NoSpace, detail));
        }
        (self.context.tell)(Message::Filling(fill.clone()));
        let mut buffer = Buffer::new(MIB as usize)
            .map_err(|e| self.context.stop(Probe::Fill, &e, "allocate a buffer"))?;
        let resumed = fill.written.len();
        let why = match self.write(fill, &mut buffer) {
            Err(Stop::Fault(fault)) => {
                // What it took before is looked at all the same.
                (self.context.tell)(Message::Fault(fault));
                "the disk could not write any more"
            }
            written => written?,
        };
        let written = self.bytes_of(fill);
        let mut tally = Tally::new(fill.blocks());
        let mut troubles = Troubles::default();
        let before = Counters::read(&self.context.job.sys.join("stat"));
        let ended = self.read_back(fill, &mut tally, &mut troubles, &mut buffer);
        let all = self.context.disk_bytes;
        let diagnoses = tally.diagnoses(&mut |index| super::address(self, fill, index));
        let placed = tally.is_placed();
        let mut faults = live::faults_of(Probe::Fill, &diagnoses, tally.confirmed, all);
        if troubles.once > 0 {
            faults.push(Fault {
                probe: Probe::Fill,
                kind: FaultKind::ReadError,
                sector: None,
                count: troubles.once,
                confirmed: false,
                detail: format!("{} reads failed once", troubles.once),
            });
        }
        for mut fault in faults {
            fault.sector = fault.sector.filter(|_| placed);
            (self.context.tell)(Message::Fault(fault));
        }
        ended?;
        let after = Counters::read(&self.context.job.sys.join("stat"));
        if let (Ok(before), Ok(after)) = (before, after)
            && ((after.read.saturating_sub(before.read)) as f64) < 0.9 * self.pass.done as f64
        {
            let detail = "what was read back did not come from the disk, by its own counters";
            return Err(Stop::NotMeasured(Reason::Cached, detail.into()));
        }
        let gib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 30));
        let earlier = match resumed {
            0 => String::new(),
            n => format!(", {n} of {} parts by earlier runs", fill.written.len()),
        };
        let wrong = match tally.bad() {
            0 => String::new(),
            n => format!(", {n} blocks of it wrong"),
        };
        Ok(format!(
            "{} of {} GiB written and read back{earlier}{wrong}{why}{}",
            gib(written),
            gib(all),
            fill.speeds()
        ))
    }

    /// The parts that are not written yet; returns why it ended before the whole.
    fn write(&mut self, fill: &mut Fill, buffer: &mut [u8]) -> Result<&'static str, Stop> {
        // Nothing is written any more once some of it was read.
        if !fill.read.is_empty() {
            return Ok("");
        }
        let written = self.new_parts(fill, buffer).and_then(|why| {
            self.again(fill, buffer)?;
            Ok(why)
        });
        written.map_err(|error| {
            let what = "write the free space";
            let stop = || self.context.stop(Probe::Fill, &error, what);
            let mut stop = self.stop.take().unwrap_or_else(stop);
            if let Stop::Fault(fault) = &mut stop {
                fault.kind = FaultKind::WriteError;
            }
            stop
        })
    }

    fn new_parts(&mut self, fill: &mut Fill, buffer: &mut [u8]) -> io::Result<&'static str> {
        let mut random = Random::new(!fill.salt);
        let mut sample = Buffer::new(BLOCK)?;
        let mut at = self.bytes_of(fill);
        self.pass.done = at;
        self.pass.all = fill.bytes;
        self.context.budget.grant(fill.bytes - at);
        while at.is_multiple_of(fill.part) && at < fill.bytes {
            let bytes = fill.part.min(fill.bytes - at);
            self.begin_part();
            let written = self.write_one(fill, at / fill.part, bytes, buffer)?;
            if written > 0 {
                let mb_s = self.part_ended(true);
                fill.written.push(mb_s);
                at += written;
            }
            if written < bytes {
                return Ok("; others took the space meanwhile");
            }
            if sample_is_bad(self, fill, at, &mut random, &mut sample) {
                return Ok("; no more was written once something was wrong");
            }
        }
        Ok("")
    }

    /// See [`AGAIN`]; on a small disk it is a quarter of what was written.
    fn again(&mut self, fill: &Fill, buffer: &mut [u8]) -> io::Result<()> {
        let mut left = (self.bytes_of(fill) / 4).min(AGAIN) >> 20 << 20;
        self.context.budget.grant(left);
        for n in 0..fill.written.len() as u64 {
            let bytes = left.min(self.held.bytes(n).unwrap_or(0));
            write_part(self, fill, n, bytes, buffer)?;
            self.durable(n)?;
            left -= bytes;
        }
        Ok(())
    }

    fn rate(&self) -> f64 {
        self.pass.part as f64 / 1e6 / self.busy.as_secs_f64().max(1e-6)
    }

    /// One part, whole and durable; 0 where there was no room for it.
    fn write_one(&mut self, fill: &Fill, n: u64, bytes: u64, buffer: &mut [u8]) -> io::Result<u64> {
        let bytes = bytes.min(self.room()?);
        if bytes == 0 {
            return Ok(0);
        }
        let fs_type = self.place.fs_type.clone();
        let open = self.part(n, true)?;
        match scratch::reserve(&open.file, &fs_type, bytes) {
            Err(error) if full(&error) => {}
            reserved => reserved?,
        }
        let written = write_part(self, fill, n, bytes, buffer)?;
        let start = Instant::now();
        self.part(n, false)?.file.set_len(written)?;
        self.durable(n)?;
        if written == 0 {
            fs::remove_file(self.held.part(n))?;
        }
        File::open(self.held.path())?.sync_all()?;
        self.busy += start.elapsed();
        Ok(written)
    }

    fn durable(&mut self, n: u64) -> io::Result<()> {
        let file = &self.part(n, false)?.file;
        file.sync_all()?;
        // Where pages may be cached, what is read back must not come from them.
        posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        Ok(())
    }

    /// All parts, but those that an earlier run found right.
    fn read_back(
        &mut self,
        fill: &mut Fill,
        tally: &mut Tally,
        troubles: &mut Troubles,
        buffer: &mut [u8],
    ) -> Result<(), Stop> {
        let blocks = fill.part / BLOCK as u64;
        for n in 0..fill.read.len() as u64 {
            let last = (n + 1) * blocks - 1;
            tally.good_before(last, &mut |index| super::address(self, fill, index));
        }
        self.pass.read = true;
        self.pass.all = self.bytes_of(fill);
        self.pass.done = fill.part * fill.read.len() as u64;
        let before = self.pass.done;
        for n in fill.read.len() as u64..fill.written.len() as u64 {
            self.begin_part();
            let bad = tally.bad();
            let bytes = self.held.bytes(n).unwrap_or(0);
            let read = read_part(self, fill, (n, bytes), tally, troubles, buffer);
            if let Err(error) = read {
                let stop = self.stop.take();
                return Err(stop.unwrap_or_else(|| {
                    self.context
                        .stop(Probe::Fill, &error, "read the filled space back")
                }));
            }
            let mb_s = self.part_ended(tally.bad() == bad);
            fill.read.push(mb_s);
            if troubles.failed >= ERRORS {
                break;
            }
        }
        self.pass.done -= before;
        Ok(())
    }
}
