//! What a classic tool is let loose on: a device, a directory of a medium, or a network share.

use super::{Figure, Tool};
use crate::error::{Error, Result, printable};
use crate::medium::{self, Medium, MountPoint};
use crate::record::{When, rounded};
use crate::state::Kept;
use std::fs;
use std::path::{Path, PathBuf};

pub struct Target {
    /// The device or the directory, without links.
    pub path: PathBuf,
    /// Identity of the medium, or client and server path of a share.
    identity: String,
    name: String,
    /// What it is, for a person, with the link's ceiling where it is known.
    pub words: String,
}

impl Target {
    /// # Errors
    /// Where there is no such place, or it is memory.
    pub fn find(device: Option<&Path>, directory: Option<&Path>, tool: &Tool) -> Result<Self> {
        if let Tool::Hdparm = tool {
            return match device {
                Some(device) => Self::medium(device),
                None => Self::root(),
            };
        }
        let asked = directory.unwrap_or(Path::new("."));
        let path = asked
            .canonicalize()
            .map_err(|e| Error::new("find", asked, e))?;
        if !path.is_dir() {
            return Err(Error::said("write in", asked, "not a directory"));
        }
        match medium::mount_of(&path)? {
            Some(mount) if mount.network => Ok(Self::share(path, &mount)),
            _ => Self::medium(&path),
        }
    }

    fn root() -> Result<Self> {
        let found = medium::find(Path::new("/"), &[], false)?;
        let root = found.media.iter().find(|m| m.role == medium::Role::Root);
        match root {
            Some(medium) => Ok(Self::of(PathBuf::from("/dev").join(&medium.device), medium)),
            None => Err(Error::said(
                "find the medium of",
                "/",
                "name one with --device",
            )),
        }
    }

    fn medium(path: &Path) -> Result<Self> {
        let asked = path
            .canonicalize()
            .map_err(|e| Error::new("find", path, e))?;
        let found = medium::find_only(Path::new("/"), &[asked.to_string_lossy().into()])?;
        match (found.media.first(), found.none.first()) {
            (Some(medium), _) => Ok(Self::of(asked, medium)),
            (None, none) => {
                let reason = none.map_or("no medium", |none| &none.reason);
                Err(Error::said("test", path, reason))
            }
        }
    }

    fn of(path: PathBuf, medium: &Medium) -> Self {
        let link = medium.link.as_ref().map_or(String::new(), |link| {
            format!(
                ", {}, at most {:.0} MB/s",
                link.description, link.ceiling_mb_s
            )
        });
        Self {
            words: format!(
                "{} on {} {}{link}",
                printable(&path.to_string_lossy()),
                medium.device,
                medium.name
            ),
            path,
            identity: medium.identity.clone(),
            name: medium.name.clone(),
        }
    }

    fn share(path: PathBuf, mount: &MountPoint) -> Self {
        let (client, server) = client_and_server(&path, mount);
        let ceiling = interface().map_or(String::new(), |(name, mbit_s)| {
            format!(
                ", over {name} at {mbit_s} Mbit/s, at most {:.1} MB/s",
                payload(mbit_s)
            )
        });
        Self {
            words: format!(
                "{} on {client} {server}{ceiling}",
                printable(&path.to_string_lossy())
            ),
            path,
            identity: format!("share:{client}:{server}"),
            name: server,
        }
    }

    pub fn kept(&self, figure: &Figure, runs: Vec<f64>) -> Kept {
        Kept {
            tool: figure.tool.into(),
            medium: self.identity.clone(),
            name: self.name.clone(),
            unit: figure.unit.into(),
            runs: runs.into_iter().map(rounded).collect(),
            when: When::now(),
        }
    }
}

/// The client's kind and the server's path: `cifs //nas/share`, `gvfs smb://nexus/share`.
fn client_and_server(path: &Path, mount: &MountPoint) -> (String, String) {
    // /run/user/1000/gvfs/smb-share:server=nexus,share=share/...
    let gvfs = path.components().find_map(|part| {
        let part = part.as_os_str().to_str()?;
        let (scheme, rest) = part.split_once(":server=")?;
        let (server, share) = rest.split_once(",share=").unwrap_or((rest, ""));
        let scheme = scheme.strip_suffix("-share").unwrap_or(scheme);
        Some(format!("{scheme}://{server}/{share}"))
    });
    match gvfs {
        Some(server) if mount.fs_type.starts_with("fuse") => ("gvfs".into(), printable(&server)),
        _ => (mount.fs_type.clone(), printable(&mount.source)),
    }
}

/// The interface of the default route and its speed in Mbit/s.
fn interface() -> Option<(String, u32)> {
    let routes = fs::read_to_string("/proc/net/route").ok()?;
    // Destination 00000000 is the default route (linux/net/ipv4/fib_trie.c).
    let default = routes
        .lines()
        .find(|line| line.split_whitespace().nth(1) == Some("00000000"))?;
    let name = default.split_whitespace().next()?;
    let speed = fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    let mbit_s: i64 = speed.trim().parse().ok()?;
    Some((name.into(), u32::try_from(mbit_s).ok().filter(|&s| s > 0)?))
}

/// MB/s that TCP carries at most: 1448 of 1538 bytes of an Ethernet frame are payload.
fn payload(mbit_s: u32) -> f64 {
    f64::from(mbit_s) / 8.0 * 1448.0 / 1538.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(path: &str, fs_type: &str, source: &str) -> (String, String) {
        let mount = MountPoint {
            fs_type: fs_type.into(),
            source: source.into(),
            network: true,
        };
        client_and_server(Path::new(path), &mount)
    }

    #[test]
    fn a_share_is_named_by_its_client_and_server() {
        let cifs = told("/mnt/nas", "cifs", "//nas/share");
        assert_eq!(cifs, ("cifs".into(), "//nas/share".into()));
        // The path of the article's third table.
        let path = "/run/user/1000/gvfs/smb-share:server=nexus,share=share/testbin";
        let gvfs = told(path, "fuse.gvfsd-fuse", "gvfsd-fuse");
        assert_eq!(gvfs, ("gvfs".into(), "smb://nexus/share".into()));
        assert_eq!(told("/mnt", "fuse.sshfs", "pi@nas:/srv").0, "fuse.sshfs");
    }

    // measurement.md section 4: Gigabit Ethernet 117.7 MB/s, 100BASE-TX 11.8 MB/s.
    #[test]
    fn an_interface_carries_less_than_its_rate() {
        assert!((payload(1000) - 117.7).abs() < 0.05);
        assert!((payload(100) - 11.8).abs() < 0.05);
    }
}
