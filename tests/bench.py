"""The measurements of tests/bench.sh: bench.py BINARY DEVICE DIRECTORY [compat]."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import tomllib

PAIRS = 7
# Of ours and of the classic tools.
RUNS = 5
# CPU time depends on whether a wake-up meets an idle core, and that changes every few
# seconds: many short pairs tell more than a few long ones.
CPU_PAIRS = 15
CPU_SECONDS = 0.4
MIB = 1 << 20

# Of each probe: the name, our key, fio's arguments.
QD1 = ["--ioengine=psync"]
PROBES = [
    ("sequential read, 1 MiB QD1", "sequential-read", [*QD1, "--rw=read", "--bs=1M"]),
    ("random read, 4 KiB QD1", "random-read", [*QD1, "--rw=randread", "--bs=4k"]),
    ("random read, 4 KiB QD32", "random-read-queued",
     ["--ioengine=libaio", "--iodepth=32", "--rw=randread", "--bs=4k"]),
]
# An order for our child (src/probe/job.rs) whose plan is spent on one probe.
PLAN = """device = "{device}"
sys = "{sys}"
share = false
bytes = {bytes}
logical_block = 512
volatile_cache = false
read_only = false
mounts = []
asked = []
state_directory = "/nonexistent"
spin_up = 0.0
keep_fill = false
only_clean = false
seed = {seed}
[plan]
seconds = {seconds}
written = 0
place_seconds = {place}
random_seconds = {random}
file = 0
write_seconds = 0.0
random_writes = 0
random_write_seconds = 0.0
stamps = 0
capacity_seconds = 0.0
fill = 0
"""

binary, device, directory = (os.path.realpath(path) for path in sys.argv[1:4])
sys_block = "/sys/block/" + os.path.basename(device)


def report(name, figure, bound, good):
    print(f"{name:<44} {figure:>12}  {bound:<12} {'ok' if good else 'NOT MET'}", flush=True)


def give_up(why):
    sys.exit(f"bench: could not measure: {why}")


def fio(arguments, seconds):
    """Rate (operations a second), CPU seconds an operation. The latter by fio's own account
    of its job: its start takes 0.2 s of CPU, which would flatter us."""
    command = ["fio", "--name=bench", f"--filename={device}", "--readonly", "--direct=1",
               # As ours: any block at any time.
               "--norandommap", "--randrepeat=0",
               "--time_based", f"--runtime={seconds * 1000:.0f}ms", "--output-format=json", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=directory)
    if done.returncode or b"{" not in done.stdout:
        give_up("fio failed")
    # Its warnings come before the JSON.
    job = json.loads(done.stdout[done.stdout.index(b"{"):])["jobs"][0]
    percent = job["usr_cpu"] + job["sys_cpu"]
    seconds = percent / 100 * job["job_runtime"] / 1e3
    return job["read"]["iops"], seconds / job["read"]["total_ios"]


def run(profile, watch=None):
    """A whole run as a user starts it. Its figures, seconds, and the most memory any of its
    processes had."""
    state = os.path.join(directory, "state")
    begin = time.monotonic()
    process = subprocess.Popen(
        [binary, "run", "--medium", device, "--profile", profile, "--state-dir", state],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    memory = 0
    while process.poll() is None:
        if watch:
            # Not ru_maxrss, which counts what we were between fork and exec.
            memory = max([memory, *map(peak, family(process.pid))])
        time.sleep(0.002)
    seconds = time.monotonic() - begin
    # 1 and 2 are answers about the medium.
    if process.returncode > 2:
        give_up(f"run --profile {profile} ended with {process.returncode}")
    with open(os.path.join(state, "state.toml"), "rb") as file:
        (record,) = tomllib.load(file)["medium"].values()
    return record["run"][-1]["figures"], seconds, memory


def family(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [pid, *map(int, file.read().split())]
    except OSError:
        return [pid]


def peak(pid):
    """KiB of memory that a process had at most; 0 before it is ours and after its end."""
    try:
        if os.readlink(f"/proc/{pid}/exe") != binary:
            return 0
        with open(f"/proc/{pid}/status") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("VmHWM")), 0)
    except OSError:
        return 0


def on_cpu(pid):
    with open(f"/proc/{pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9


def probe(key, seconds):
    """CPU seconds an operation of our child, its start and end included, but not another
    probe that comes before."""
    sequential, queued = key == "sequential-read", key == "random-read-queued"
    job = PLAN.format(
        device=device, sys=sys_block, seed=time.monotonic_ns() & 0xFFFFFFFF,
        bytes=size(),
        # The queued read comes after the other and for as long; without the queued one, the
        # time of the whole is up before it.
        seconds=float(seconds if key == "random-read" else 10 * seconds),
        place=seconds / 3 if sequential else 0.0,
        random=0.0 if sequential else float(seconds))
    process = subprocess.Popen([binary, "probe"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(job.encode())
    process.stdin.close()
    other, operations, pending = 0.0, 0, b""
    while chunk := os.read(process.stdout.fileno(), 65536):
        *messages, pending = (pending + chunk).split(b"\0")
        for message in map(tomllib.loads, map(bytes.decode, messages)):
            if queued and message.get("started") == "random-read":
                other = -on_cpu(process.pid)
            if queued and message.get("started") == key:
                other += on_cpu(process.pid)
            if message.get("measured", {}).get("probe") == key:
                operations = message["measured"]["operations"]
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status or not operations:
        give_up(f"the child of {key} ended with {status}")
    return (usage.ru_utime + usage.ru_stime - other) / operations


def size():
    with open(sys_block + "/size") as file:
        return int(file.read()) * 512


def written():
    """Bytes by the disk's own counters, with what the file system still held back."""
    os.sync()
    with open(sys_block + "/stat") as file:
        return int(file.read().split()[6]) * 512


def median(values):
    return statistics.median(values)


def against_fio():
    rates, times = ({key: [] for _, key, _ in PROBES} for _ in range(2))
    # One of ours, one of fio's and so on, so that another's load meets both.
    for _ in range(PAIRS):
        ours, _, _ = run("routine")
        for _, key, arguments in PROBES:
            if key not in ours:
                give_up(f"a run without {key}")
            rate, _ = fio(arguments, 1)
            if key == "sequential-read":
                rate *= MIB / 1e6
            rates[key].append((ours[key], rate))
    for _ in range(CPU_PAIRS):
        for _, key, arguments in PROBES:
            pair = probe(key, CPU_SECONDS), fio(arguments, CPU_SECONDS)[1]
            # fio counts in whole milliseconds and percent: on a machine with no time for it, 0.
            if pair[1] > 0:
                times[key].append(pair)
    for name, key, _ in PROBES:
        ratio = median(ours / theirs for ours, theirs in rates[key])
        unit = "MB/s" if key == "sequential-read" else "IOPS"
        ours, theirs = (median(side) for side in zip(*rates[key]))
        report(f"{name}, {unit}", f"{ratio:.3f} x fio", ">= 0.97", ratio >= 0.97)
        print(f"    {ours:.0f} against {theirs:.0f}")
    for name, key, _ in PROBES:
        if len(times[key]) <= CPU_PAIRS // 2:
            give_up(f"fio's CPU time for the {name}: the machine is too busy")
        ratio = median(ours / theirs for ours, theirs in times[key])
        ours, theirs = (median(side) * 1e6 for side in zip(*times[key]))
        report(f"{name}, CPU an operation", f"{ratio:.3f} x fio", "<= 1", ratio <= 1)
        print(f"    {ours:.2f} us against {theirs:.2f}")


def bounds():
    before = written()
    _, seconds, memory = run("boot", watch=True)
    wrote = (written() - before) / MIB
    report("boot profile, time", f"{seconds:.1f} s", "<= 30 s", seconds <= 30)
    report("boot profile, written by the disk's count", f"{wrote:.1f} MiB", "<= 24 MiB", wrote <= 24)
    report("peak memory of any process", f"{memory / 1024:.1f} MiB", "<= 8 MiB", 0 < memory <= 8192)
    times = []
    for _ in range(20):
        begin = time.monotonic()
        subprocess.run([binary, "list"], stdout=subprocess.DEVNULL, check=True)
        times.append(time.monotonic() - begin)
    report("list", f"{median(times) * 1e3:.1f} ms", "< 20 ms", median(times) < 0.020)
    arm = "dist/aarch64/storage-selftest"
    if os.path.exists(arm):
        kib = os.stat(arm).st_size / 1024
        report("aarch64 binary", f"{kib:.0f} KiB", "<= 768 KiB", kib <= 768)


def number(text, before):
    """The number that follows these words."""
    return float(text.split(before, 1)[1].split()[0].rstrip("/s"))


def tool(*command, **options):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "LC_ALL": "C"}, **options)
    if done.returncode:
        give_up(f"{' '.join(command)}: {done.stdout}")
    return done.stdout


# Where the tools write: a new directory each time, as ours makes one.
disk = os.path.join(directory, "disk")
theirs_in = os.path.join(disk, "theirs")

# The jobs of sd_bench.fio (agnostics, since 2024-07): name, direction, block, whether for 10 s.
JOBS = [("prepare-file", "write", "512k", False), ("seq-write", "write", "4m", False),
        ("seq-read", "read", "4m", False), ("rand-4k-write", "randwrite", "4k", True),
        ("rand-4k-read", "randread", "4k", True)]


def compat(*arguments):
    state = os.path.join(directory, "compat")
    return tool(binary, "compat", *arguments, "--yes", "--state-dir", state)


def hdparm(ours):
    text = compat("hdparm", "--device", device) if ours else tool("hdparm", "-tT", device)
    return {f"hdparm {name}": number(text.split(words, 1)[1], " = ")
            for name, words in (("-T", "cached reads"), ("-t", "disk reads"))}


def dd(ours):
    if ours:
        text = compat("dd", "--dir", disk, "--size", "256MiB")
    else:
        target = os.path.join(theirs_in, "dd")
        text = tool("dd", "if=/dev/zero", f"of={target}", "ibs=1M", "obs=1M", "count=256")
        # As ours does after its figure: sync(2) would make other requests of the same pages.
        with open(target) as file:
            os.fdatasync(file.fileno())
    line = next(line for line in text.splitlines() if " copied, " in line)
    size, seconds = int(line.split()[0]), float(line.split(" copied, ")[1].split()[0])
    return {"dd": size / 1e6 / seconds}


def agnostics(ours):
    """One try of the shape of 2024; fio's figures are read as sdtest.sh reads them."""
    if ours:
        text = compat("agnostics", "--dir", disk)
        return {"agnostics " + words: number(text, words[0].upper() + words[1:] + " speed ")
                for words in ("sequential write", "sequential read", "random write", "random read")}
    lines = ["[global]", "ioengine=libaio", "iodepth=32", "size=256m", "direct=1", "end_fsync=1",
             f"directory={theirs_in}", "filename=sd.test.file"]
    for name, rw, block, random in JOBS:
        lines += [f"[{name}]", f"rw={rw}", f"bs={block}", *["runtime=10"] * random, "stonewall"]
    jobs = os.path.join(directory, "sd_bench.fio")
    with open(jobs, "w") as file:
        file.write("\n".join(lines))
    text = tool("fio", "--output-format=terse", jobs, cwd=directory)
    fields = {line.split(";")[2]: line.split(";") for line in text.splitlines() if line.startswith("3;")}
    figure = lambda job, field: float(fields[job][field - 1])
    return {"agnostics sequential write": figure("seq-write", 48),
            "agnostics sequential read": figure("seq-read", 7),
            "agnostics random write": figure("rand-4k-write", 49),
            "agnostics random read": figure("rand-4k-read", 8)}


def counters():
    """Requests, sectors, flushes of the disk; see the kernel's block/stat.rst."""
    os.sync()
    with open(sys_block + "/stat") as file:
        fields = list(map(int, file.read().split()))
    return fields[0] + fields[4], fields[2] + fields[6], fields[15]


def counted(of, ours):
    makes_one = not ours and of != hdparm
    before = counters()
    if makes_one:
        os.mkdir(theirs_in)
    figures = of(ours)
    if makes_one:
        shutil.rmtree(theirs_in)
    return figures, [after - first for first, after in zip(before, counters())]


def against_the_tools():
    """Five runs of ours and of each tool in turn; the ratio of the medians, and the tool's own
    spread, which no ratio can be nearer than."""
    pairs, counts = {}, {}
    for n in range(RUNS):
        for of in (hdparm, dd, agnostics):
            # Who comes second finds the disk's memory warm: each in turn.
            sides = {ours: counted(of, ours) for ours in ([True, False] if n % 2 else [False, True])}
            for name, figure in sides[True][0].items():
                pairs.setdefault(name, []).append((figure, sides[False][0][name]))
            counts.setdefault(of.__name__, []).append((sides[True][1], sides[False][1]))
    for name, both in pairs.items():
        ours, theirs = zip(*both)
        ratio = median(ours) / median(theirs)
        spread = (max(theirs) - min(theirs)) / median(theirs)
        good = abs(ratio - 1) <= max(0.03, spread / 2)
        report(name, f"{ratio:.3f} x", f"+-{max(3, 50 * spread):.0f} %", good)
        print(f"    {median(ours):.0f} against {median(theirs):.0f}, which spread over {100 * spread:.0f} %")
    for name, both in counts.items():
        for n, what in enumerate(("requests", "sectors", "flushes")):
            ours, theirs = (median(side[n] for side in sides) for sides in zip(*both))
            good = abs(ours - theirs) <= max(0.01 * theirs, 1)
            report(f"{name}, {what} of the disk", f"{ours / max(theirs, 1):.3f} x", "+-1 %", good)
            print(f"    {ours:.0f} against {theirs:.0f}")


if sys.argv[4:] == ["compat"]:
    against_the_tools()
else:
    bounds()
    against_fio()
