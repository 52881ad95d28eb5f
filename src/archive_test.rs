//! A record says of every recorded tree what the tree itself says, and nothing of its owner.

use super::*;
use std::process::Command;

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut cases: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.join("proc/self/mountinfo").exists());
    cases.sort();
    cases
}

fn list(root: &Path) -> String {
    let found = medium::find(root, &[], true).unwrap();
    crate::report::list::list(&found, |medium| evidence::collect(root, medium))
}

/// Records `root` and unpacks it with tar(1).
fn unpacked(root: &Path, full: bool) -> PathBuf {
    let name = format!("storage-selftest-record-{}", std::process::id());
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() {
        memory.to_path_buf()
    } else {
        std::env::temp_dir()
    };
    let place = base.join(name);
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(place.join("tree")).unwrap();
    let archive = place.join("a.tar");
    let file = File::create_new(&archive).unwrap();
    let bytes = record(root, &[], full, file).unwrap();
    assert!(bytes < 300 << 10, "{bytes} bytes");
    let status = Command::new("tar")
        .arg("-xf")
        .arg(&archive)
        .arg("-C")
        .arg(place.join("tree"))
        .status();
    assert!(status.unwrap().success());
    place
}

/// One test: what is noted while reading is noted for the whole process.
#[test]
fn a_record_is_the_tree_again() {
    for (at, case) in cases().iter().enumerate() {
        // Unpacking takes its time: every third one also in full.
        if at % 3 == 0 {
            let place = unpacked(case, true);
            assert_eq!(list(&place.join("tree")), list(case), "{}", case.display());
        }
        let place = unpacked(case, false);
        let (masked, plain) = (list(&place.join("tree")), list(case));
        // The same lines, but for identities and places.
        assert_eq!(
            masked.lines().count(),
            plain.lines().count(),
            "{masked}{plain}"
        );
        for (masked, plain) in masked.lines().zip(plain.lines()) {
            let may_differ = ["identity", "mounted"]
                .iter()
                .any(|word| plain.contains(word));
            assert!(masked == plain || may_differ, "{masked}\n{plain}");
        }
        std::fs::remove_dir_all(place).unwrap();
    }
}

fn mask() -> Mask {
    Mask {
        full: false,
        salt: 1,
        places: vec!["/media/alice/My disk".into()],
    }
}

#[test]
fn serial_numbers_are_hidden_and_told_apart() {
    let mask = mask();
    let hide = |name: &str, text: &str| {
        let bytes = mask.content(Path::new(name), text.as_bytes().to_vec());
        String::from_utf8(bytes).unwrap()
    };
    let (one, other) = (
        hide("/x/serial", "S3Z9NB0K123456\n"),
        hide("/x/serial", "S3Z9NB0K123457\n"),
    );
    assert_ne!(one, other);
    assert!(one.len() == 15 && !one.contains("123456") && one.ends_with('\n'));
    assert_eq!(one, hide("/y/serial", "S3Z9NB0K123456\n"));
    // The maker's part of a CID and its date stay, the serial number ecf4c851 and the sum go.
    let cid = hide("/x/cid", "035344534331364780ecf4c851011b85\n");
    assert!(
        cid.starts_with("035344534331364780") && cid.ends_with("011b00\n"),
        "{cid}"
    );
    assert!(!cid.contains("ecf4c851") && cid.len() == 33, "{cid}");
    assert_eq!(hide("/x/serial", "0x00000012\n"), "0x00000012\n");
    assert!(hide("/x/wwid", "naa.5002538e40a1b2c3").starts_with("naa.5"));
}

#[test]
fn nothing_of_the_user_is_kept() {
    let mask = mask();
    let text = "27 1 179:2 / / rw - ext4 /dev/root rw\n\
                40 27 8:1 / /media/alice/My\\040disk rw - ext4 /dev/sda1 rw\n\
                41 27 0:50 / /mnt/nas rw - cifs //server/share rw,username=alice\n\
                42 27 0:51 / /home/alice/x rw - fuse.sshfs alice@host: rw\n";
    assert_eq!(
        mask.mountinfo(text),
        "27 1 179:2 / / rw - ext4 /dev/root rw\n40 27 8:1 / /mnt/1 rw - ext4 /dev/sda1 rw\n"
    );
    let fstab =
        "//server/s /mnt/nas cifs username=alice,password=x 0 0\nUUID=1 / ext4 defaults 0 1\n";
    assert_eq!(mask.fstab(fstab), "UUID=1 / ext4 defaults\n");
    assert_eq!(
        command_line("console=tty1 root=PARTUUID=ab-02 wifi.psk=secret ro quiet\n"),
        "root=PARTUUID=ab-02 ro\n"
    );
}
