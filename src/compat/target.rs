//! What a classic tool is let loose on: a device, a directory of a medium, or a network share.

use super::{Figure, Tool};
use crate::error::{Error, Result, printable};
use crate::medium::{self, Medium, Transport};
use crate::record::{When, rounded};
use crate::state::Kept;
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
        Self::medium(&path)
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
        // Of a share its client, which is the first part of what identifies it.
        let device = match medium.transport {
            Transport::Network => medium.identity.split(':').nth(1).unwrap_or_default(),
            _ => &medium.device,
        };
        Self {
            words: format!(
                "{} on {device} {}{link}",
                printable(&path.to_string_lossy()),
                medium.name
            ),
            path,
            identity: medium.identity.clone(),
            name: medium.name.clone(),
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
