//! A network share as a medium: another machine's disk, through a client here.

use super::mountinfo::Entry;
use super::tree::Tree;
use super::{Link, Medium, Mount, Role, Transport};
use crate::error::printable;
use std::path::Path;

/// What is known of the share at a mount without asking its server, who may not answer.
pub fn medium(tree: &Tree, entry: &Entry, path: &Path, number: usize) -> Medium {
    let (client, server) = client_and_server(path, &entry.fs_type, &entry.source);
    Medium {
        role: Role::Configured,
        device: format!("share{number}"),
        identity: format!("share:{client}:{server}"),
        name: server,
        joined_name: None,
        transport: Transport::Network,
        bytes: 0,
        logical_block: 512,
        rotational: false,
        read_only: false,
        volatile_cache: false,
        scheduler: String::new(),
        link: interface(tree).map(|(name, mbit_s)| Link {
            description: format!("{client} over {name}, {mbit_s} Mbit/s"),
            ceiling_mb_s: payload(mbit_s),
            usb_mbit_s: 0.0,
        }),
        mounts: vec![Mount {
            path: entry.point.clone(),
            fs_type: entry.fs_type.clone(),
            read_only: entry.read_only(),
            layers: Vec::new(),
        }],
    }
}

/// The client's kind and the server's path: `cifs //nas/share`, `gvfs smb://nexus/share`.
pub fn client_and_server(path: &Path, fs_type: &str, source: &str) -> (String, String) {
    // /run/user/1000/gvfs/smb-share:server=nexus,share=share/...
    let gvfs = path.components().find_map(|part| {
        let part = part.as_os_str().to_str()?;
        let (scheme, rest) = part.split_once(":server=")?;
        let (server, share) = rest.split_once(",share=").unwrap_or((rest, ""));
        let scheme = scheme.strip_suffix("-share").unwrap_or(scheme);
        Some(format!("{scheme}://{server}/{share}"))
    });
    match gvfs {
        Some(server) if fs_type.starts_with("fuse") => ("gvfs".into(), printable(&server)),
        _ => (fs_type.into(), printable(source)),
    }
}

/// The interface of the default route and its speed in Mbit/s.
fn interface(tree: &Tree) -> Option<(String, u32)> {
    let routes = tree.text("/proc/net/route")?;
    // Destination 00000000 is the default route (net/ipv4/fib_trie.c).
    let default = |line: &&str| line.split_whitespace().nth(1) == Some("00000000");
    let name = routes.lines().find(default)?.split_whitespace().next()?;
    // -1 where the link is down, an error where the interface has no such thing.
    let speed: i64 = tree.number(format!("/sys/class/net/{name}/speed"))?;
    Some((name.into(), u32::try_from(speed).ok().filter(|&s| s > 0)?))
}

/// MB/s that TCP carries at most: 1448 of 1538 bytes of an Ethernet frame are payload.
fn payload(mbit_s: u32) -> f64 {
    f64::from(mbit_s) / 8.0 * 1448.0 / 1538.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_named_by_its_client_and_server() {
        let told =
            |path: &str, fs_type, source| client_and_server(Path::new(path), fs_type, source);
        let cifs = told("/mnt/nas", "cifs", "//nas/share");
        assert_eq!(cifs, ("cifs".into(), "//nas/share".into()));
        // The path of the second article's third table.
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
