//! Where on a medium the scratch file goes, and what a killed run left there. Only the child of
//! the medium looks: whoever touches a file system that hangs, hangs.

use super::capacity::fillers;
use super::job::Job;
use super::{Reason, fill::files, scratch};
use crate::error::printable_path;
use crate::medium::Mount;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory that may be written.
#[derive(Clone, Debug)]
pub struct Place {
    pub directory: PathBuf,
    pub fs_type: String,
    /// Its device number: another one later means that the medium was unmounted meanwhile.
    pub dev: u64,
    /// Bytes that stay free on that file system.
    pub reserve: u64,
}

/// Why there is none.
pub type Refused = (Reason, String);

/// The state directory where it lies on the medium (a service may write nowhere else), the mount
/// that was asked for, or the medium's first writable mount.
/// # Errors
/// With the reason why nothing can be written.
pub fn find(job: &Job) -> Result<Place, Refused> {
    let writable = || job.mounts.iter().filter(|mount| !mount.read_only);
    let on = |path: &Path, mount: &Mount| {
        path.is_dir() && device(path).is_some() && device(path) == device(&mount.path)
    };
    if let Some(mount) = writable().find(|mount| on(&job.state_directory, mount)) {
        return place(job, &job.state_directory, mount);
    }
    // What the firmware boots from is not ours to put at risk.
    let boot = |mount: &Mount| {
        ["/boot", "/efi"]
            .iter()
            .any(|top| mount.path.starts_with(top))
    };
    let asked = writable().find(|mount| job.asked.iter().any(|path| on(path, mount)));
    let usual = || writable().find(|mount| mount.path.is_dir() && !boot(mount));
    match asked.or_else(usual) {
        Some(mount) => place(job, &mount.path, mount),
        None => Err(refused(job)),
    }
}

fn device(path: &Path) -> Option<u64> {
    fs::metadata(path).map(|meta| meta.dev()).ok()
}

fn place(job: &Job, directory: &Path, mount: &Mount) -> Result<Place, Refused> {
    let failed = |what: &str, error: &std::io::Error| {
        let path = printable_path(directory);
        let cause = crate::error::cause_text(error);
        (Reason::Other, format!("{what} {path}: {cause}"))
    };
    let dev = fs::metadata(directory).map_err(|e| failed("look at", &e))?;
    let space = scratch::space(directory).map_err(|e| failed("ask for the free space of", &e))?;
    // design.md: the larger of 5 % and 256 MiB, 64 MiB on media under 4 GiB.
    let least = if job.bytes < 4 << 30 {
        64 << 20
    } else {
        256 << 20
    };
    Ok(Place {
        directory: directory.to_path_buf(),
        fs_type: mount.fs_type.clone(),
        dev: dev.dev(),
        reserve: least.max(space.size / 20),
    })
}

fn refused(job: &Job) -> Refused {
    let device = printable_path(&job.device);
    match job.mounts.first() {
        _ if job.read_only => (Reason::ReadOnly, format!("{device} is read-only")),
        Some(mount) => {
            let path = printable_path(&mount.path);
            (Reason::ReadOnly, format!("{path} is mounted read-only"))
        }
        None => {
            let what = format!("no file system of {device} is mounted");
            (Reason::NotMounted, what)
        }
    }
}

/// Removes what a killed run left.
pub fn clean(job: &Job) {
    let mounts = job.mounts.iter().filter(|mount| !mount.read_only);
    let directories = mounts.map(|mount| &mount.path);
    for directory in directories.chain([&job.state_directory]) {
        match scratch::remove_left(directory) {
            Ok(true) => log::info!(
                "removed {} that an earlier run left",
                printable_path(&directory.join(scratch::NAME))
            ),
            Ok(false) => {}
            Err(error) => log::warn!("{error}"),
        }
        // The state may lie on another medium, whose fill is not ours to give back.
        let ours = job
            .mounts
            .iter()
            .any(|mount| device(&mount.path) == device(directory));
        if !ours {
            continue;
        }
        let kept = if job.keep_fill {
            None
        } else {
            Some(files::NAME)
        };
        for name in [Some(fillers::NAME), kept].into_iter().flatten() {
            let path = directory.join(name);
            match files::give_back(&path) {
                Ok(0) => {}
                Ok(bytes) => log::info!(
                    "gave {} MiB back that a stopped run had filled in {}",
                    bytes >> 20,
                    printable_path(&path)
                ),
                Err(error) => log::warn!("{error}"),
            }
        }
    }
}
