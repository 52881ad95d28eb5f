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
        link: interface(tree, entry.super_option("addr")).map(|(name, mbit_s)| Link {
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

/// The interface on the way to the server and its speed in Mbit/s. Its address is the mount's
/// `addr`; a client that has none (FUSE) is taken to use the default route.
fn interface(tree: &Tree, server: Option<&str>) -> Option<(String, u32)> {
    let address = server.and_then(ipv4).unwrap_or(0);
    if address.to_le_bytes()[0] == 127 {
        return None; // this very machine: no link
    }
    let routes = tree.bytes("/proc/net/route").ok()?; // text() is for one line
    let routes = String::from_utf8_lossy(&routes);
    // Destination and mask as the numbers that lie in memory (net/ipv4/fib_trie.c): the longest
    // mask decides, that of the default route is 0.
    let matching = |line: &str| {
        let hex = |text: &str| u32::from_str_radix(text, 16).ok();
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (destination, mask) = (hex(fields.get(1)?)?, hex(fields.get(7)?)?);
        let name = fields.first()?.to_string();
        (address & mask == destination).then_some((mask.count_ones(), name))
    };
    let (_, name) = routes
        .lines()
        .filter_map(matching)
        .max_by_key(|route| route.0)?;
    // -1 where the link is down, an error where the interface has no such thing.
    let speed: i64 = tree.number(format!("/sys/class/net/{name}/speed"))?;
    Some((name, u32::try_from(speed).ok().filter(|&s| s > 0)?))
}

fn ipv4(text: &str) -> Option<u32> {
    let octets: Vec<u8> = text
        .split('.')
        .filter_map(|octet| octet.parse().ok())
        .collect();
    Some(u32::from_le_bytes(octets.try_into().ok()?))
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

    // Lines as net/ipv4/fib_trie.c prints them: 192.168.1.0/24 on eth0, 10.0.0.0/8 on eth1, the
    // default route on eth0.
    #[test]
    fn the_link_is_the_one_on_the_way_to_the_server() {
        let root = std::env::temp_dir().join(format!("route-{}", std::process::id()));
        std::fs::create_dir_all(root.join("proc/net")).unwrap();
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
             eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
             eth1\t0000000A\t00000000\t0001\t0\t0\t100\t000000FF\t0\t0\t0\n\
             eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n";
        std::fs::write(root.join("proc/net/route"), routes).unwrap();
        for (name, speed) in [("eth0", "1000\n"), ("eth1", "100\n")] {
            let directory = root.join("sys/class/net").join(name);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("speed"), speed).unwrap();
        }
        let tree = Tree::new(&root);
        let of = |server| interface(&tree, server);
        let (fast, slow) = (Some(("eth0".into(), 1000)), Some(("eth1".into(), 100)));
        assert_eq!(of(Some("192.168.1.5")), fast);
        assert_eq!(of(Some("10.1.2.3")), slow);
        assert_eq!(of(Some("8.8.8.8")), fast);
        assert_eq!(of(Some("fe80::1")), fast);
        assert_eq!(of(None), fast);
        assert_eq!(of(Some("127.0.0.1")), None);
        std::fs::remove_dir_all(&root).unwrap();
    }

    // measurement.md section 4: Gigabit Ethernet 117.7 MB/s, 100BASE-TX 11.8 MB/s.
    #[test]
    fn an_interface_carries_less_than_its_rate() {
        assert!((payload(1000) - 117.7).abs() < 0.05);
        assert!((payload(100) - 11.8).abs() < 0.05);
    }
}
