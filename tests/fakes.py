"""Fakes and good disks of 32 GiB without an emulated board: tests/fakes.py BINARY RIG [PART | genuine N].

Each disk is one of the rig's (RIG disk DIR WORDS), by NBD and FUSE a loop device
with an ext4 on it; the boot profile runs on it, and beside it f3probe on another
one of the same words. Needs root, nbdfuse (Debian: libnbd-bin) and f3probe (f3).
With PART only those whose words have it. With `genuine N`: N boot runs on good loop disks, 64 MiB to 64 GiB.
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


def tested(binary, device, options):
    """Mounts it, runs the boot profile; the findings of its data, the output, bytes."""
    work = Path(tempfile.mkdtemp(prefix="fakes."))
    (work / "at").mkdir()
    run("mount", "-o", options, device, work / "at")
    before = written(device)
    done = run(binary, "run", "--profile", "boot", "--medium", work / "at", "--state-dir", work / "s", check=False)
    count = written(device) - before
    run("umount", work / "at")
    shutil.rmtree(work)
    text = re.sub(r"\s+", " ", done.stdout + done.stderr)
    took = re.search(r"boot run, ([\d.]+) s", text)
    found = {m for m in PROOF.findall(text)}
    return found, text, count, float(took.group(1)) if took else 0.0


def one(binary, rig, words):
    """A row: what both say of such a disk."""
    disk = Disk(rig, f"virtio=32G,{words}")
    run("mkfs.ext4", "-q", "-F", "-O", "^has_journal,^resize_inode,sparse_super2",
        "-E", "num_backup_sb=0,nodiscard", disk.loop)
    found, text, count, took = tested(binary, disk.loop, "nodiscard,noinit_itable")
    disk.close()
    size = re.search(r"real size (\d+) MiB|usable up to (\d+) MiB", text)
    disk = Disk(rig, f"virtio=32G,{words}")
    start = time.monotonic()
    probe = run("f3probe", "--destructive", "--time-ops", "--reset-type=2", disk.loop, check=False).stdout
    probed = time.monotonic() - start
    disk.close()
    writes = re.search(r"Write: .* / (\d+)", probe)
    cost = int(writes.group(1)) * 512 if writes else 0
    word = re.search(r"is the real thing|counterfeit of type \w+|is damaged|type \w+", probe)
    usable = re.search(r"\*Usable\* size: (.+?) \(", probe)
    size = next((g for g in (size.groups() if size else ()) if g), "-")
    return (words, " ".join(sorted(found)) or "nothing", size, f"{count / MIB:.1f}", f"{took:.1f}",
            word.group(0) if word else "no answer", usable.group(1) if usable else "-",
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
        part = sys.argv[3] if len(sys.argv) > 3 else ""
        wanted = [words for words in fakes() if part in words]
        print("words|found|MiB|written MiB|seconds|f3probe|usable|written MiB|seconds")
        for row in pool.map(lambda words: one(binary, rig, words), wanted):
            print("|".join(row), flush=True)


main()
