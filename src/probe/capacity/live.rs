//! The proof on a real disk: free space is claimed for a moment, the chosen blocks are kept and the
//! rest is given back; what is stamped lies in those blocks, and is read from the disk itself.

use super::diagnose::{Diagnosis, smallest_share};
use super::fillers::{self, Fillers};
use super::marker::Marker;
use super::{Blocks, Proof, STAMPS, aliases, stamps};
use crate::error::cause_text;
use crate::medium::Tree;
use crate::medium::mountinfo::Mounts;
use crate::probe::canary;
use crate::probe::extents::{self, Extent};
use crate::probe::fat;
use crate::probe::io::{Meter, Pace, read_exact};
use crate::probe::job::Context;
use crate::probe::pattern::{self, BLOCK, Random};
use crate::probe::place::Place;
use crate::probe::scratch::{self, Scratch};
use crate::probe::{Fault, FaultKind, Measurement, Message, Probe, Proved, Reason, Stop};
use crate::sys::Buffer;
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest time that free space may be low, and what is claimed at a time.
pub const CLAIM: Duration = Duration::from_secs(2);
const CLAIMED_AT_ONCE: u64 = 1 << 30;
/// Of the budget so much is left to the file system's own writes for a stamp: its extent, its
/// block of the bitmap. Seen on ext4 of 29 GiB: 2.8 MiB in a whole boot run with 614 stamps.
const OWN: u64 = 4096;

/// Seconds in which aliases are looked for: two thousand reads on a card of 32 GB.
const LOOK: f64 = 5.0;

/// Blocks of the marker that are looked at before its images are looked for.
const LOOKS: usize = 16;

/// Free space that was claimed: the chosen blocks of it, the rest is given back.
pub struct Claim {
    held: Held,
    addresses: Vec<u64>,
    /// Bytes that were claimed, and how long they were.
    bytes: u64,
    low: Duration,
}

/// What holds the chosen blocks.
enum Held {
    /// One file, and where it lies.
    File(Scratch, Vec<Extent>),
    /// A file for each.
    Files(Fillers),
}

impl Claim {
    /// Our files with their places.
    fn files(&self) -> Vec<(&File, &[Extent])> {
        match &self.held {
            Held::File(scratch, extents) => vec![(&scratch.file, extents)],
            Held::Files(fillers) => {
                let each = fillers.files.iter();
                each.map(|(file, extent)| (file, &extent[..])).collect()
            }
        }
    }

    /// Claims what the reserve and `others` leave, chooses `count` blocks and gives the rest back.
    /// # Errors
    /// With the reason why the disk cannot be sampled through this file system.
    fn new(
        context: &Context,
        place: &Place,
        others: u64,
        count: usize,
        seed: u64,
    ) -> Result<Self, String> {
        let said = |e: io::Error| format!("ask for the free space: {}", cause_text(&e));
        let free = scratch::space(&place.directory).map_err(said)?.free;
        let wanted = free.saturating_sub(place.reserve + others);
        let start = Instant::now();
        let mut claim = match place.fs_type.as_str() {
            // All of the free space would be trimmed when it is given back.
            "ext4" | "xfs" | "exfat" if discards(&place.directory) => {
                return Err("it is mounted with the option discard".into());
            }
            "ext4" | "xfs" => Self::in_one_file(context, place, wanted, count, seed)?,
            "exfat" if context.whole_disk => {
                let fillers = Fillers::claim(context, place, wanted, count.min(fillers::MOST))?;
                let places = fillers.files.iter().map(|(_, [extent])| extent.disk);
                Claim {
                    addresses: places.collect(),
                    bytes: fillers.bytes,
                    held: Held::Files(fillers),
                    low: Duration::ZERO,
                }
            }
            fs => {
                return Err(format!(
                    "{fs} does not tell in advance where a block will lie"
                ));
            }
        };
        claim.low = start.elapsed();
        Ok(claim)
    }

    fn in_one_file(
        context: &Context,
        place: &Place,
        wanted: u64,
        count: usize,
        seed: u64,
    ) -> Result<Self, String> {
        let said = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
        let scratch = Scratch::create(place).map_err(said("create a file"))?;
        if !scratch.direct {
            return Err("the file system takes no direct I/O".into());
        }
        let bytes = claim(&scratch.file, wanted, Instant::now());
        let mut extents = extents::of(&scratch.file, &place.fs_type, &context.job.sys)?;
        let addresses = stamps::choose(&extents, count, &mut Random::new(seed));
        give_back(&scratch.file, &mut extents, &addresses, bytes)
            .map_err(said("give the claimed space back"))?;
        Ok(Claim {
            held: Held::File(scratch, extents),
            addresses,
            bytes,
            low: Duration::ZERO,
        })
    }
}

/// Whether the mount of this directory has the option `discard`; also where nobody can tell.
fn discards(directory: &Path) -> bool {
    let mounts = Mounts::read(&Tree::new(Path::new("/")));
    let entry = mounts.ok().and_then(|mounts| {
        let owner = mounts.owner(&directory.canonicalize().ok()?)?;
        Some(owner.discards())
    });
    entry.unwrap_or(true)
}

/// Punches out all but the blocks at these addresses, and forgets where the rest was.
fn give_back(
    file: &File,
    extents: &mut Vec<Extent>,
    addresses: &[u64],
    bytes: u64,
) -> io::Result<()> {
    let block = BLOCK as u64;
    let kept = |&at: &u64| {
        let file = extents::in_file(extents, at)?;
        Some(Extent {
            file,
            disk: at,
            length: block,
        })
    };
    let mut kept: Vec<Extent> = addresses.iter().filter_map(kept).collect();
    kept.sort_unstable_by_key(|extent| extent.file);
    let mut from = 0;
    let end = Extent {
        file: bytes,
        disk: 0,
        length: 0,
    };
    for extent in kept.iter().chain([&end]) {
        punch(file, from, extent.file)?;
        from = extent.file + block;
    }
    *extents = kept;
    Ok(())
}

/// Cuts the holes out of the file, so that nobody who copies it writes gigabytes of zeros.
fn without_holes(file: &File, extents: &[Extent]) -> io::Result<()> {
    let block = BLOCK as u64;
    let offsets: Vec<u64> = extents.iter().map(|extent| extent.file).collect();
    let Some(last) = offsets.last() else {
        return Ok(());
    };
    file.set_len(last + block)?;
    // From the end, so that what is before it keeps its place.
    for n in (0..offsets.len()).rev() {
        let from = n.checked_sub(1).map_or(0, |before| offsets[before] + block);
        let length = (offsets[n] - from) as i64;
        let flags = FallocateFlags::FALLOC_FL_COLLAPSE_RANGE;
        if length > 0 {
            fallocate(file, flags, from as i64, length).map_err(io::Error::from)?;
        }
    }
    Ok(())
}

/// Allocates up to `wanted` bytes, as much as there is in the time; they need not be in one piece.
fn claim(file: &File, wanted: u64, start: Instant) -> u64 {
    let (mut done, mut step) = (0, CLAIMED_AT_ONCE);
    while done < wanted && step >= 1 << 20 && start.elapsed() < CLAIM {
        let length = step.min(wanted - done);
        match fallocate(file, FallocateFlags::empty(), done as i64, length as i64) {
            Ok(()) => done += length,
            // Others need the space too: what is left in small pieces is theirs.
            Err(_) => step /= 4,
        }
    }
    done
}

fn punch(file: &File, from: u64, to: u64) -> io::Result<()> {
    if to <= from {
        return Ok(());
    }
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(file, flags, from as i64, (to - from) as i64).map_err(io::Error::from)
}

/// The disk with our files on it.
struct Live<'a> {
    /// The whole disk, where it may be opened.
    disk: Option<&'a File>,
    bytes: u64,
    /// Our files and where they lie.
    files: Vec<(&'a File, &'a [Extent])>,
    start: Instant,
    until: Instant,
    operations: u32,
    /// What an operation took before.
    usual: Duration,
    /// Where the disk failed first, in a second try too, and whether in a write.
    failed: Option<(u64, bool)>,
    pace: Pace,
}

impl Live<'_> {
    fn file_at(&self, at: u64) -> Option<(&File, u64)> {
        self.files
            .iter()
            .find_map(|(file, extents)| Some((*file, extents::in_file(extents, at)?)))
    }

    fn leave_room(&mut self, start: Instant) {
        self.operations += 1;
        if self.pace.due(start.elapsed()) {
            self.pace.pause();
        }
    }

    fn note(&mut self, at: u64, writing: bool, done: io::Result<()>) -> io::Result<()> {
        if done.is_err() {
            self.failed.get_or_insert((at, writing));
        }
        done
    }

    /// Whether the file system itself reads another content at a stamp than the disk shows there:
    /// then it was not the disk's fault, the address was wrong. A disk that shows something new at
    /// each reading tells nothing by that.
    fn disagree(&self, at: u64) -> io::Result<bool> {
        let (Some(disk), Some((file, offset))) = (self.disk, self.file_at(at)) else {
            return Ok(false);
        };
        let (mut first, mut shown) = (Buffer::new(BLOCK)?, Buffer::new(BLOCK)?);
        read_exact(disk, &mut first, at)?;
        read_exact(disk, &mut shown, at)?;
        if *first != *shown {
            return Ok(false);
        }
        read_exact(file, &mut first, offset)?;
        Ok(*first != *shown)
    }
}

impl Blocks for Live<'_> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = Instant::now();
        // No failure of the disk's: what others keep on it may not be read here.
        if self.disk.is_none() && self.file_at(at).is_none() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut read = || match (self.disk, self.file_at(at)) {
            (Some(disk), _) => read_exact(disk, buffer, at),
            (None, Some((file, offset))) => read_exact(file, buffer, offset),
            (None, None) => Err(io::ErrorKind::PermissionDenied.into()),
        };
        let done = read();
        // Each try may take the kernel's time-out: one failure is enough to be sure of.
        let done = done.or_else(|e| self.failed.map_or_else(&mut read, |_| Err(e)));
        self.note(at, false, done)?;
        self.leave_room(start);
        Ok(())
    }

    fn write(&mut self, at: u64, block: &[u8]) -> io::Result<()> {
        let start = Instant::now();
        let Some((file, offset)) = self.file_at(at) else {
            return Err(io::Error::other("no file of ours lies there"));
        };
        let done = file.write_all_at(block, offset);
        self.note(at, true, done)?;
        self.leave_room(start);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.files[..] {
            // Many small ones: all at once.
            [_, _, (file, _), ..] => nix::unistd::syncfs(file).map_err(io::Error::from),
            _ => self.files.iter().try_for_each(|(file, _)| file.sync_data()),
        }
    }

    /// A stamp takes five operations, three of them after it was written; a write may take twice
    /// as long as most of what was done before.
    fn room(&self, stamped: usize) -> Option<usize> {
        let left = self.until.checked_duration_since(Instant::now())?;
        let one = self
            .usual
            .max(self.start.elapsed() / self.operations.max(1));
        let spare = left.checked_sub(one * 4 * stamped as u32)?;
        Some((spare.as_nanos() / (one * 7).as_nanos().max(1)) as usize)
    }
}

/// A proof between its two halves.
pub struct Running {
    claim: Option<Claim>,
    proof: Option<Proof>,
    /// Why free space was not sampled.
    why: String,
}

/// What lies low on the disk and is there again.
#[derive(Clone, Copy)]
pub struct Alias {
    /// The size that the disk takes addresses modulo of, if that is why.
    pub real: u64,
    /// The first block of the mounted file system is there again as well, with what this mount wrote
    /// into it: no copy that lay there before.
    pub live: bool,
}

/// What reading alone tells, before anything is written: on a fake, what a file system writes high
/// up for the smallest file of ours lands on somebody's data.
/// # Errors
/// Where the disk cannot be read.
pub fn look(context: &Context, place: &Place) -> Result<Option<Alias>, Stop> {
    let mut live = live(context, Vec::new(), LOOK);
    let found = aliases::find(&mut live);
    let real = match found {
        Ok(Some(real)) => real,
        Ok(None) => return Ok(None),
        Err(error) => return Err(stopped(context, live.failed, &error, "read the disk")),
    };
    let top = File::open(&place.directory).ok();
    let start = top.and_then(|top| {
        nix::unistd::syncfs(&top).ok()?;
        extents::start(&top, &context.job.sys).ok()
    });
    let live = start.is_some_and(|start| aliases::same(&mut live, start, start + real));
    Ok(Some(Alias { real, live }))
}

/// Tells that the disk is a fake.
pub fn tell_wraps(context: &mut Context, real: u64) {
    let fault = wraps(Probe::Capacity, real, context.disk_bytes);
    (context.tell)(Message::Fault(fault));
}

/// The half before the durable write, see [`Proof::begin`].
pub fn begin(context: &mut Context, place: &Place, alias: Option<Alias>) -> Result<Running, Stop> {
    let alias = alias.map(|alias| alias.real);
    let salt = context.job.seed ^ 3;
    let claim = match alias {
        None => claim_space(context, place, salt),
        Some(_) => Err("what lies low on the disk is there twice, if as a copy".into()),
    };
    let (claim, why) = match claim {
        Ok(claim) => (Some(claim), String::new()),
        Err(why) => (None, why),
    };
    let none = (Vec::new(), Vec::new());
    let (addresses, files) = claim
        .as_ref()
        .map_or(none, |claim| (claim.addresses.clone(), claim.files()));
    let mut live = live(context, files, 3.0);
    // Without the whole disk only our own files can be looked at.
    let proof = match live.disk.is_some() || !addresses.is_empty() {
        true => Some(Proof::begin(&mut live, alias, &addresses, salt)),
        false => None,
    };
    let proof = match proof.transpose() {
        Ok(proof) => proof,
        Err(error) => {
            let failed = live.failed;
            return Err(stopped(context, failed, &error, "stamp the disk"));
        }
    };
    Ok(Running { claim, proof, why })
}

/// Space for as many stamps as the budget has; the reason where there is none.
fn claim_space(context: &mut Context, place: &Place, salt: u64) -> Result<Claim, String> {
    let plan = &context.job.plan;
    let kept = (canary::BLOCKS + plan.random_writes as usize) * BLOCK;
    let tables = match place.fs_type.as_str() {
        "exfat" => fillers::TABLES,
        _ => 0,
    };
    let others = plan.file + kept as u64 + tables;
    let each = 2 * BLOCK as u64 + OWN;
    let affordable = context.budget.left().saturating_sub(others) / each;
    let count = affordable.min(plan.stamps.min(STAMPS as u64));
    if !context.spend(count * each + (canary::BLOCKS * BLOCK) as u64 + tables) {
        return Err(String::new());
    }
    Claim::new(context, place, others, count as usize, salt)
}

/// A failure with the place where it happened.
fn stopped(context: &Context, failed: Option<(u64, bool)>, error: &io::Error, what: &str) -> Stop {
    let mut stop = context.stop(Probe::Capacity, error, what);
    if let (Stop::Fault(fault), Some((at, writing))) = (&mut stop, failed) {
        (fault.sector, fault.confirmed) = (Some(at / 512), true);
        if writing {
            fault.kind = FaultKind::WriteError;
        }
    }
    stop
}

/// What can be told of a disk that may not be written: aliases.
pub fn read_only(context: &mut Context) {
    let mut live = live(context, Vec::new(), LOOK);
    if live.disk.is_none() {
        return;
    }
    match aliases::find(&mut live) {
        Ok(Some(real)) => tell_wraps(context, real),
        Ok(None) => {}
        // The read probes tell a disk that cannot be read.
        Err(error) => log::debug!("{error}"),
    }
}

fn live<'a>(context: &'a Context, files: Vec<(&'a File, &'a [Extent])>, seconds: f64) -> Live<'a> {
    Live {
        disk: context.whole_disk.then_some(&context.disk),
        bytes: context.disk_bytes,
        files,
        start: Instant::now(),
        until: context.budget.until(seconds),
        operations: 0,
        usual: context.random_read_median,
        failed: None,
        pace: Pace::new(),
    }
}

const OVER: &str = "the time was over before the stamps could be read back";

/// The half after it, up to where everything is put back as it was.
/// True where the disk proved to be a fake.
pub fn finish(context: &mut Context, scratch: &Scratch, place: &Place, running: Running) -> bool {
    let Running {
        claim,
        proof: Some(mut proof),
        why,
    } = running
    else {
        tell(context, running.why);
        return false;
    };
    let scratch_extents = lies(context, scratch).unwrap_or_else(|reason| {
        log::debug!("{reason}");
        Vec::new()
    });
    let seed = context.job.seed;
    let marks = marks(scratch, &scratch_extents);
    let mut marker =
        (context.whole_disk && !marks.is_empty()).then(|| Marker::new(seed, marks.into_iter()));
    let mut files = vec![(&scratch.file, &scratch_extents[..])];
    files.extend(claim.iter().flat_map(Claim::files));
    (context.tell)(Message::Started(Probe::Capacity));
    let mut live = live(context, files.clone(), context.job.plan.capacity_seconds);
    let ended = proof.go_on(&mut live, marker.as_mut());
    let wrong = proof
        .first_bad()
        .is_some_and(|at| live.disagree(at).unwrap_or(false));
    let failed = live.failed;
    let sentence = match wrong {
        true => "the file system moved its blocks meanwhile, so nothing is proved".into(),
        false => sentence(context, &proof, claim.as_ref(), &why),
    };
    if !wrong {
        faults(&proof, context.disk_bytes)
            .into_iter()
            .for_each(|fault| (context.tell)(Message::Fault(fault)));
    }
    match ended {
        Ok(()) if proof.unread => context.not_measured(Probe::Capacity, Reason::Time, OVER),
        Ok(()) => tell(context, sentence),
        Err(error) => match stopped(context, failed, &error, "prove the capacity") {
            Stop::Fault(fault) => (context.tell)(Message::Fault(fault)),
            Stop::NotMeasured(reason, detail) => {
                context.not_measured(Probe::Capacity, reason, detail);
            }
        },
    }
    if proof.stamps.count() > 0 {
        let put_back = |context: &mut Context| restore(context, &files, &mut proof);
        context.run(Probe::RandomWriteSpan, put_back);
    }
    // A probe does not begin when the time is over; this must be done all the same.
    if let Err(Stop::Fault(fault)) = restore(context, &files, &mut proof) {
        (context.tell)(Message::Fault(fault));
    }
    let bad = proof.fake() || !proof.diagnoses.is_empty();
    let enough = |claim: &Claim| claim.addresses.len() >= canary::BLOCKS;
    if let (Some(claim), false) = (claim.filter(enough), bad || wrong) {
        keep(context, place, claim);
    }
    proof.fake() && !wrong
}

/// Makes 64 of the chosen blocks the canary, gives back the others.
fn keep(context: &mut Context, place: &Place, claim: Claim) {
    let Held::File(scratch, mut extents) = claim.held else {
        return; // the canary is one file
    };
    let (all, count) = (claim.addresses.len(), canary::BLOCKS);
    let addresses: Vec<u64> = (0..count)
        .map(|n| claim.addresses[n * all / count])
        .collect();
    let file = &scratch.file;
    let made = give_back(file, &mut extents, &addresses, claim.bytes).and_then(|()| {
        without_holes(file, &extents)?;
        canary::make(file, place, context.job.seed ^ 4)
    });
    match made {
        Ok(canary) => (context.tell)(Message::Canary(canary)),
        Err(error) => log::warn!("no canary is kept: {error}"),
    }
}

/// Puts back what was there: an overwrite in random order across the whole disk, one at a time.
fn restore(
    context: &mut Context,
    files: &[(&File, &[Extent])],
    proof: &mut Proof,
) -> Result<Measurement, Stop> {
    let mut meter = Meter::new(Probe::RandomWriteSpan);
    let mut live = Live {
        disk: None,
        bytes: context.disk_bytes,
        files: files.to_vec(),
        start: Instant::now(),
        until: Instant::now(),
        operations: 0,
        usual: context.random_read_median,
        failed: None,
        pace: Pace::new(),
    };
    let restored = proof.stamps.restore(&mut live, |disk, at, block| {
        meter.time(BLOCK as u64, || disk.write(at, block))
    });
    restored.map_err(|e| context.stop(Probe::RandomWriteSpan, &e, "put a block back"))?;
    Ok(meter.measurement(1, true))
}

/// Where the scratch file lies: only what the disk itself shows there.
fn lies(context: &Context, scratch: &Scratch) -> Result<Vec<Extent>, String> {
    let job = &context.job;
    if !context.whole_disk {
        return extents::of(&scratch.file, scratch.fs_type(), &job.sys);
    }
    let found = match (scratch.path(), scratch.fs_type()) {
        (Some(path), "vfat" | "exfat") => fat::lies(&context.disk, job, path)?,
        _ => extents::of(&scratch.file, scratch.fs_type(), &job.sys)?,
    };
    let (mut want, mut shown) = (
        vec![0; BLOCK],
        Buffer::new(BLOCK).map_err(|e| e.to_string())?,
    );
    let marks = marks(scratch, &found);
    // A file of that name elsewhere, or one that was moved: its images would be another's.
    let (mut looks, mut same) = (0, 0);
    for &(at, index, generation) in marks.iter().step_by(marks.len().div_ceil(LOOKS).max(1)) {
        pattern::fill(&mut want, job.seed, index, generation);
        let read = read_exact(&context.disk, &mut shown, at);
        looks += 1;
        same += u32::from(read.is_ok() && *shown == want[..]);
    }
    if same * 2 < looks {
        return Err("the disk does not show the file where it is said to lie".into());
    }
    Ok(found)
}

/// Where each block of the scratch file lies.
fn marks(scratch: &Scratch, extents: &[Extent]) -> Vec<(u64, u64, u8)> {
    let block = BLOCK as u64;
    let blocks = extents.iter().flat_map(|extent| {
        (0..extent.length / block).map(|n| (extent.disk + n * block, extent.file / block + n))
    });
    blocks
        .filter_map(|(at, index)| {
            let generation = *scratch.generations.get(index as usize)?;
            (generation < 100).then_some((at, index, generation))
        })
        .collect()
}

fn tell(context: &mut Context, sentence: String) {
    (context.tell)(Message::Proved(Proved {
        probe: Probe::Capacity,
        sentence,
    }));
}

fn gib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 30))
}

/// What was proved, and how far: also where nothing bad was found.
fn sentence(context: &Context, proof: &Proof, claim: Option<&Claim>, why: &str) -> String {
    let all = context.disk_bytes;
    let mut parts = Vec::new();
    match proof.stamps.count() {
        0 if proof.wraps_at().is_some() => {}
        0 => parts.push(format!("no free space was sampled: {why}")),
        count => {
            parts.push(format!(
                "{count} stamps across {} of {} GiB read back twice; {:.1} % or more bad blocks would have shown with 99 % probability",
                gib(proof.stamps.span()), gib(all), smallest_share(count) * 100.0
            ));
        }
    }
    if proof.scan.reads > 0 {
        parts.push(format!(
            "{} reads over {} GiB {} an image of our own data",
            proof.scan.reads,
            gib(proof.scan.covered),
            if proof.scan.wraps_at.is_some() {
                "found"
            } else {
                "did not find"
            }
        ));
    }
    if let Some(claim) = claim {
        let (bytes, low) = (gib(claim.bytes), claim.low.as_millis());
        parts.push(format!("{bytes} GiB were claimed for {low} ms"));
    }
    parts.join("; ")
}

/// What the proof found, as faults.
fn faults(proof: &Proof, all: u64) -> Vec<Fault> {
    match proof.wraps_at() {
        Some(real) => vec![wraps(Probe::Capacity, real, all)],
        None => faults_of(Probe::Capacity, &proof.diagnoses, proof.confirmed, all),
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn wraps(probe: Probe, real: u64, all: u64) -> Fault {
    let (real, all) = (mib(real), mib(all));
    Fault {
        probe,
        kind: FaultKind::CapacityWraps,
        sector: None,
        count: 1,
        confirmed: true,
        detail: format!("real size {real} of {all}: what lies beyond overwrites what lies below"),
    }
}

/// Diagnoses of a disk of `all` bytes as faults.
pub fn faults_of(probe: Probe, diagnoses: &[Diagnosis], confirmed: bool, all: u64) -> Vec<Fault> {
    let block = if probe == Probe::Fill {
        "block"
    } else {
        "stamp"
    };
    let one = |diagnosis: &Diagnosis| {
        let (kind, first, count, detail) = match *diagnosis {
            Diagnosis::Wraps { real } => return wraps(probe, real, all),
            Diagnosis::Ends {
                last_good,
                first_bad,
                instead,
            } => {
                let (from, usable, all) = (mib(first_bad), mib(last_good), mib(all));
                let detail = format!(
                    "{instead} instead of what was written from {from} on; usable up to {usable} of {all}"
                );
                (FaultKind::CapacityLost, first_bad, 1, detail)
            }
            Diagnosis::Changed { count, first, bits } => {
                let detail = format!("{bits} of 32768 bits changed in a {block}");
                (FaultKind::DataChanged, first, count, detail)
            }
            Diagnosis::Lost {
                count,
                first,
                instead,
            } => {
                let detail = format!("{instead} instead of a {block}");
                (FaultKind::DataLost, first, count, detail)
            }
            Diagnosis::Overwritten { count, first } => {
                let detail = format!("another {block} instead of its own");
                (FaultKind::DataOverwritten, first, count, detail)
            }
            Diagnosis::Unreadable { count, first } => {
                let detail = format!("{count} {block}s could not be read");
                (FaultKind::ReadError, first, count, detail)
            }
        };
        Fault {
            probe,
            kind,
            sector: Some(first / 512),
            count,
            confirmed,
            detail,
        }
    };
    diagnoses.iter().map(one).collect()
}
