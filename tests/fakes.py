"""Fakes and good disks without an emulated board: tests/fakes.py BINARY RIG [WHAT].

Each disk is one of the rig's (RIG disk DIR WORDS), by NBD and FUSE a loop device
with an ext4 on it. Needs root, nbdfuse (Debian: libnbd-bin) and f3probe (f3).

  [PART]       the boot profile on fakes of 32 GiB, and f3probe on others of the
               same words; with PART only those whose words have it
  full [PART]  a full run on fakes of 4 GiB
  left N       N boot runs on wrapping fakes with files on them: do fsck and the
               files' checksums say after it what they said before?
  genuine N    N boot runs on good loop disks, 64 MiB to 64 GiB
"""

import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MIB, GIB = 1 << 20, 1 << 30
PROOF = re.compile(r"capacity-\w+|data-\w+|read-error|write-error")


def run(*command, check=True):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
    return done


class Disk:
    """A disk of the rig as a loop device."""

    def __init__(self, rig, words):
        self.dir = Path(tempfile.mkdtemp(prefix="fakes."))
        mount = self.dir / "fuse"
        mount.mkdir()
        self.rig = subprocess.Popen([rig, "disk", self.dir, words], stdin=subprocess.PIPE)
        wait(lambda: (self.dir / "d.nbd").exists())
        self.fuse = subprocess.Popen(["nbdfuse", mount / "disk", "--unix", self.dir / "d.nbd"])
        wait(lambda: (mount / "disk").exists())
        self.loop = run("losetup", "--direct-io=on", "--show", "-f", mount / "disk").stdout.strip()

    def close(self):
        run("losetup", "-d", self.loop)
        wait(lambda: run("fusermount3", "-u", self.dir / "fuse", check=False).returncode == 0)
        self.fuse.wait()
        self.rig.stdin.close()
        self.rig.wait()
        shutil.rmtree(self.dir)


def wait(ready):
    for _ in range(200):
        if ready():
            return
        time.sleep(0.05)
    raise RuntimeError("it did not come")


def written(device):
    return int(Path(f"/sys/block/{Path(device).name}/stat").read_text().split()[6]) * 512


def tested(binary, device, options, profile="boot"):
    """Mounts it, runs the profile; the findings of its data, the output, bytes."""
    work = Path(tempfile.mkdtemp(prefix="fakes."))
    (work / "at").mkdir()
    run("mount", "-o", options, device, work / "at")
    before = written(device)
    done = run(binary, "run", "--profile", profile, "--medium", work / "at", "--state-dir", work / "s", check=False)
    count = written(device) - before
    run("umount", work / "at")
    shutil.rmtree(work)
    text = re.sub(r"\s+", " ", done.stdout + done.stderr)
    took = re.search(rf"{profile} run, ([\d.]+) (s|min)", text)
    found = {m for m in PROOF.findall(text)}
    seconds = float(took.group(1)) * {"s": 1, "min": 60}[took.group(2)] if took else 0.0
    return found, text, count, seconds


def mkfs(device):
    """An ext4 that has nothing high up which a fake would have broken already."""
    run("mkfs.ext4", "-q", "-F", "-O", "^has_journal,^resize_inode,sparse_super2",
        "-E", "num_backup_sb=0,nodiscard", device)


def ours(binary, rig, words, profile):
    """What we say of such a disk: findings, its size, MiB written, seconds."""
    disk = Disk(rig, words)
    mkfs(disk.loop)
    found, text, count, took = tested(binary, disk.loop, "nodiscard,noinit_itable", profile)
    disk.close()
    size = re.search(r"real size (\d+) MiB|usable up to (\d+) MiB", text)
    size = next((g for g in (size.groups() if size else ()) if g), "-")
    return " ".join(sorted(found)) or "nothing", size, f"{count / MIB:.1f}", f"{took:.1f}"


def full(binary, rig, words):
    """A row of a full run."""
    return words, *ours(binary, rig, f"virtio=4G,{words}", "full")


def one(binary, rig, words):
    """A row: what both say of such a disk."""
    row = ours(binary, rig, f"virtio=32G,{words}", "boot")
    disk = Disk(rig, f"virtio=32G,{words}")
    start = time.monotonic()
    probe = run("f3probe", "--destructive", "--time-ops", "--reset-type=2", disk.loop, check=False).stdout
    probed = time.monotonic() - start
    disk.close()
    writes = re.search(r"Write: .* / (\d+)", probe)
    cost = int(writes.group(1)) * 512 if writes else 0
    word = re.search(r"is the real thing|counterfeit of type \w+|is damaged|type \w+", probe)
    usable = re.search(r"\*Usable\* size: (.+?) \(", probe)
    return (words, *row, word.group(0) if word else "no answer", usable.group(1) if usable else "-",
            f"{cost / MIB:.0f}", f"{probed:.1f}")


def fakes():
    rng = random.Random(5)
    sizes = [16 * GIB, 8 * GIB, 4 * GIB, 7450 * MIB, 7680 * MIB]
    caches = ["", ",cache=64K", ",cache=1M", ",cache=16M"]
    for size in sizes:
        for cache in caches:
            yield f"fake={size}{cache}"
    for n in range(20):
        yield f"fake={(2 * GIB + rng.randrange(29 * GIB)) // 4096 * 4096}{caches[n % 4]}"
    for shows in ["", ",shows=ones", ",shows=noise", ",shows=last"]:
        for size in [16 * GIB, 7680 * MIB]:
            for cache in caches:
                yield f"lost={size}{shows}{cache}"
    for damaged in (10, 1):
        yield f"damaged={damaged}"


def full_fakes():
    for size in [2 * GIB, GIB, 960 * MIB]:
        for cache in ["", ",cache=16M"]:
            yield f"fake={size}{cache}"
    for shows in ["", ",shows=ones", ",shows=noise", ",shows=last"]:
        yield f"lost={2 * GIB}{shows}"
        yield f"lost={960 * MIB}{shows},cache=16M"
    for damaged in (10, 1):
        yield f"damaged={damaged}"


def left(binary, rig, seed):
    """Findings on a wrapping fake, and what changed on it."""
    rng = random.Random(seed)
    words = f"fake={(3 * GIB + rng.randrange(13 * GIB)) // 4096 * 4096}"
    disk = Disk(rig, f"virtio=32G,{words}")
    mkfs(disk.loop)
    at = disk.dir / "at"
    at.mkdir()
    run("mount", "-o", "nodiscard,noinit_itable", disk.loop, at)
    for n in range(200):
        (at / f"file{n}").write_bytes(rng.randbytes(MIB))
    run("umount", at)

    def state():
        check = run("e2fsck", "-fn", disk.loop, check=False).stdout
        run("mount", "-o", "ro", disk.loop, at)
        sums = run("sh", "-c", f"cd {at} && sha256sum file*").stdout
        run("umount", at)
        return check, sums

    # What a mount does by itself is none of our doing: ext4lazyinit reads all bitmaps, and
    # counts what it finds broken.
    run("mount", "-o", "nodiscard,noinit_itable", disk.loop, at)
    time.sleep(5)
    run("umount", at)
    before = state()
    found, text, _, _ = tested(binary, disk.loop, "nodiscard,noinit_itable")
    after = state()
    disk.close()
    same = ["fsck" * (before[0] != after[0]), "files" * (before[1] != after[1])]
    return words, " ".join(sorted(found)), " ".join(filter(None, same)), before[0], after[0]


def changes(before, after):
    """The words of e2fsck that are new or gone."""
    before, after = before.split(), after.split()
    for sign, some, others in (("-", before, set(after)), ("+", after, set(before))):
        words = [word for word in some if word not in others]
        yield f"{sign} {len(words)} words: {' '.join(words[:40])}"


def genuine(binary, seed):
    rng = random.Random(seed)
    size = rng.choice([64 * MIB, 256 * MIB, GIB, 4 * GIB, 16 * GIB, 64 * GIB])
    fs = rng.choice(["ext4"] if size < 512 * MIB else ["ext4", "ext4", "xfs", "btrfs"])
    state = rng.choice(["empty", "half full", "97 % full", "fragmented"])
    work = Path(tempfile.mkdtemp(prefix="fakes."))
    image, at = work / "image", work / "at"
    at.mkdir()
    run("truncate", "-s", size, image)
    loop = run("losetup", "--show", "-f", image).stdout.strip()
    run(f"mkfs.{fs}", *{"ext4": ["-q", "-F"], "xfs": ["-q", "-f"], "btrfs": ["-q", "-f"]}[fs], loop)
    run("mount", loop, at)
    free = int(run("stat", "-f", "-c", "%a", at).stdout) * int(run("stat", "-f", "-c", "%S", at).stdout)
    share = {"empty": 0, "half full": 0.5, "97 % full": 0.97, "fragmented": 0.95}[state]
    if share:
        run("fallocate", "-l", int(free * share) // MIB * MIB or MIB, at / "data", check=False)
    if state == "fragmented" and (at / "data").exists():
        # Pieces of 512 KiB, at most 2000 of them.
        length = (at / "data").stat().st_size
        step = max(MIB, length // 2000 // MIB * MIB)
        for offset in range(0, length, step):
            run("fallocate", "-p", "-o", offset, "-l", 512 << 10, at / "data", check=False)
    run("umount", at)
    found, text, count, took = tested(binary, loop, "nodiscard")
    run("losetup", "-d", loop)
    shutil.rmtree(work)
    said = re.search(r"capacity: (.{0,60})", text)
    return size, fs, state, found, text, said.group(1) if said else "-"


def main():
    binary, rig = sys.argv[1:3]
    with ThreadPoolExecutor(4) as pool:
        if sys.argv[3:4] == ["genuine"]:
            bad = 0
            for size, fs, state, found, text, said in pool.map(lambda n: genuine(binary, n), range(int(sys.argv[4]))):
                print(f"{size // MIB} MiB {fs}, {state}: {' '.join(sorted(found)) or 'nothing wrong'}; {said}", flush=True)
                bad += bool(found)
                if found:
                    print(text)
            print(f"{bad} of {sys.argv[4]} with a finding")
            return
        if sys.argv[3:4] == ["left"]:
            worse = 0
            for words, found, changed, before, after in pool.map(lambda n: left(binary, rig, n), range(int(sys.argv[4]))):
                print(f"{words}: {found}; changed: {changed or 'nothing'}", flush=True)
                worse += bool(changed)
                if changed:
                    print(*changes(before, after), sep="\n")
            print(f"{worse} of {sys.argv[4]} changed")
            return
        if sys.argv[3:4] == ["full"]:
            part = sys.argv[4] if len(sys.argv) > 4 else ""
            print("words|found|MiB|written MiB|seconds")
            for row in pool.map(lambda words: full(binary, rig, words), [w for w in full_fakes() if part in w]):
                print("|".join(row), flush=True)
            return
        part = sys.argv[3] if len(sys.argv) > 3 else ""
        wanted = [words for words in fakes() if part in words]
        print("words|found|MiB|written MiB|seconds|f3probe|usable|written MiB|seconds")
        for row in pool.map(lambda words: one(binary, rig, words), wanted):
            print("|".join(row), flush=True)


if __name__ == "__main__":
    main()
