//! The only module with `unsafe`: what std and nix do not wrap.

use nix::libc;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// Alignment of every I/O buffer in bytes. 64 KiB fits every page size that Linux boards use
/// (4, 16 and 64 KiB) and every logical block size.
pub const BUFFER_ALIGN: usize = 64 << 10;

/// A huge page where base pages are 4 KiB. Direct I/O pins each page of a buffer anew: 256 of
/// them cost more CPU time than all the rest of a read of 1 MiB.
const HUGE_PAGE: usize = 2 << 20;
/// Buffers from this size on ask for huge pages.
const LARGE: usize = 1 << 20;

/// A zeroed heap buffer that direct I/O accepts.
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    layout: Layout,
}

impl Buffer {
    /// A buffer of `len` bytes; `len` is at least 1.
    pub fn new(len: usize) -> io::Result<Self> {
        match len {
            0..LARGE => Self::aligned(len, len.max(1), BUFFER_ALIGN),
            _ => Self::aligned(len, len.next_multiple_of(HUGE_PAGE), HUGE_PAGE),
        }
    }

    /// A buffer in base pages, as the classic tools have theirs: of a huge one the kernel makes
    /// larger requests, and copies to it faster.
    pub fn in_base_pages(len: usize) -> io::Result<Self> {
        Self::aligned(len, len.max(1), BUFFER_ALIGN)
    }

    fn aligned(len: usize, size: usize, align: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(size, align).map_err(io::Error::other)?;
        // SAFETY: the layout's size is not zero.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        if align == HUGE_PAGE {
            // A kernel that has none, or no free one, gives base pages: slower, not wrong.
            // SAFETY: whole pages that are all ours; the advice changes no content.
            unsafe { libc::madvise(start.as_ptr().cast(), size, libc::MADV_HUGEPAGE) };
        }
        // SAFETY: `size` bytes were allocated. After the advice: the first touch decides.
        unsafe { start.write_bytes(0, len) };
        Ok(Self { start, len, layout })
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` initialised bytes as long as self lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and self is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// `struct iocb` of linux/aio_abi.h, little-endian field order (all our targets are).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    reqprio: i16,
    fildes: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

/// `struct io_event` of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct IoEvent {
    /// The slot that the operation was submitted with.
    pub slot: u64,
    object: u64,
    /// Bytes read or written, or a negative errno.
    pub result: i64,
    result2: i64,
}

/// What a queue does with each of its slots; the numbers are those of linux/aio_abi.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read = 0,
    Write = 1,
}

/// Linux AIO: a queue of operations of one size that are really in flight at the same time.
/// It exists on every kernel we meet; io_uring is switched off on many of them.
pub struct Queue<'a> {
    context: libc::c_ulong,
    file: &'a File,
    direction: Direction,
    buffer: Buffer,
    control: Vec<Iocb>,
    block: usize,
    in_flight: usize,
}

impl<'a> Queue<'a> {
    /// A queue of operations of `block` bytes, as many as `buffer` has room for; writes take their
    /// data from there.
    /// # Errors
    /// `ENOSYS` where the kernel (or an emulator) has no AIO.
    pub fn new(
        file: &'a File,
        direction: Direction,
        block: usize,
        buffer: Buffer,
    ) -> io::Result<Self> {
        let depth = buffer.len() / block;
        let mut context: libc::c_ulong = 0;
        // SAFETY: io_setup writes one aio_context_t to a valid pointer.
        checked(unsafe {
            libc::syscall(libc::SYS_io_setup, depth as libc::c_ulong, &mut context)
        })?;
        Ok(Self {
            context,
            file,
            direction,
            buffer,
            control: vec![Iocb::default(); depth],
            block,
            in_flight: 0,
        })
    }

    /// Submits an operation at `offset` bytes for each `(slot, offset)`; a slot must be idle.
    pub fn submit(&mut self, operations: &[(usize, u64)]) -> io::Result<()> {
        let mut pointers = [std::ptr::null_mut::<Iocb>(); 64];
        for (pointer, &(slot, offset)) in pointers.iter_mut().zip(operations) {
            assert!((slot + 1) * self.block <= self.buffer.len());
            // SAFETY: within the buffer, as just checked. No reference is made: some are in flight.
            let buf = unsafe { self.buffer.start.as_ptr().add(slot * self.block) } as usize as u64;
            let control = &mut self.control[slot];
            *control = Iocb {
                data: slot as u64,
                opcode: self.direction as u16,
                fildes: self.file.as_raw_fd() as u32,
                buf,
                nbytes: self.block as u64,
                offset: offset as i64,
                ..Iocb::default()
            };
            *pointer = control;
        }
        let mut done = 0;
        let count = operations.len().min(pointers.len());
        while done < count {
            // SAFETY: every pointer names an Iocb in `control`, whose buffer lies in `buffer`; both
            // live until Drop has waited for what is in flight.
            let taken = checked(unsafe {
                libc::syscall(
                    libc::SYS_io_submit,
                    self.context,
                    (count - done) as libc::c_long,
                    pointers[done..].as_mut_ptr(),
                )
            })? as usize;
            done += taken;
            self.in_flight += taken;
        }
        Ok(())
    }

    /// Waits for at least one operation and returns how many of `events` are filled.
    pub fn wait(&mut self, events: &mut [IoEvent]) -> io::Result<usize> {
        // SAFETY: the kernel writes at most `events.len()` events.
        let got = checked(unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                1 as libc::c_long,
                events.len() as libc::c_long,
                events.as_mut_ptr(),
                std::ptr::null_mut::<libc::timespec>(),
            )
        })? as usize;
        self.in_flight -= got.min(self.in_flight);
        Ok(got)
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        // SAFETY: io_destroy waits for everything in flight, so no buffer is freed under the kernel.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

/// The head of `struct statx` (linux/stat.h) up to the direct-I/O fields.
#[repr(C)]
struct Statx {
    mask: u32,
    before: [u32; 37],
    dio_mem_align: u32,
    dio_offset_align: u32,
    rest: [u32; 24],
}

const STATX_DIOALIGN: u32 = 0x2000; // linux/stat.h, since 6.1

/// What the file system says of direct I/O on this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectIo {
    /// Offsets and lengths must be multiples of this many bytes.
    Aligned(u32),
    /// The file system refuses it (statx answers 0).
    Refused,
    /// The kernel is older than 6.1, or the file system does not say (btrfs).
    NotSaid,
}

/// Asks statx for the direct-I/O alignment of an open file.
pub fn direct_io(file: &File) -> DirectIo {
    // SAFETY: all-zero bytes are a valid Statx.
    let mut answer: Statx = unsafe { std::mem::zeroed() };
    // SAFETY: an empty path with AT_EMPTY_PATH names the descriptor; the kernel writes 256 bytes,
    // the size of Statx (checked below at compile time).
    let result = unsafe {
        libc::syscall(
            libc::SYS_statx,
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            STATX_DIOALIGN,
            &mut answer,
        )
    };
    if result < 0 || answer.mask & STATX_DIOALIGN == 0 {
        DirectIo::NotSaid
    } else if answer.dio_offset_align == 0 {
        DirectIo::Refused
    } else {
        DirectIo::Aligned(answer.dio_offset_align)
    }
}

const _: () =
    assert!(size_of::<Statx>() == 256 && std::mem::offset_of!(Statx, dio_mem_align) == 0x98);
const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<IoEvent>() == 32);

/// Gives this process the lowest priority of the best-effort I/O class (linux/ioprio.h). Not the
/// idle class: mq-deadline lets that wait up to 10 s for others, and a healthy disk on a busy
/// machine would show stalls that are not its own. bfq and mq-deadline honour it; `none` does not.
pub fn lowest_io_priority() -> io::Result<()> {
    const IOPRIO_WHO_PROCESS: libc::c_long = 1;
    const BEST_EFFORT_7: libc::c_long = (2 << 13) | 7;
    // SAFETY: plain integers.
    checked(unsafe {
        libc::syscall(
            libc::SYS_ioprio_set,
            IOPRIO_WHO_PROCESS,
            0 as libc::c_long,
            BEST_EFFORT_7,
        )
    })?;
    Ok(())
}

nix::ioctl_read!(get_flags, b'f', 1, libc::c_long);
nix::ioctl_write_ptr!(set_flags, b'f', 2, libc::c_long);
const FS_NOCOW_FL: libc::c_long = 0x0080_0000; // linux/fs.h

/// `chattr +C` on an empty file: without it btrfs sends direct writes through the page cache,
/// since it must checksum them.
pub fn no_copy_on_write(file: &File) -> io::Result<()> {
    let mut flags: libc::c_long = 0;
    // SAFETY: the kernel reads and writes one int (it declares long) at a valid pointer.
    unsafe { get_flags(file.as_raw_fd(), &mut flags) }.map_err(io::Error::from)?;
    flags |= FS_NOCOW_FL;
    // SAFETY: as above.
    unsafe { set_flags(file.as_raw_fd(), &flags) }.map_err(io::Error::from)?;
    Ok(())
}

/// `struct usbdevfs_ctrltransfer` of linux/usbdevice_fs.h.
#[repr(C)]
pub struct UsbControl {
    request_type: u8,
    request: u8,
    value: u16,
    index: u16,
    length: u16,
    timeout_ms: u32,
    data: *mut u8,
}

nix::ioctl_readwrite!(usb_control, b'U', 0, UsbControl);

/// Asks a USB device for its BOS descriptor: GET_DESCRIPTOR, a request that every device with one
/// must answer (USB 3.2, 9.4.3), on the control pipe; the disk's own traffic is not touched.
/// # Errors
/// Those of open(2) on `/dev/bus/usb/BBB/DDD` and of the transfer; `EPIPE` where there is none.
pub fn usb_bos(bus: u8, device: u8) -> io::Result<Vec<u8>> {
    const DEVICE_TO_HOST: u8 = 0x80;
    const GET_DESCRIPTOR: u8 = 6;
    const BOS: u16 = 0x0f00;
    let path = format!("/dev/bus/usb/{bus:03}/{device:03}");
    let file = File::options().read(true).write(true).open(path)?;
    let mut answer = vec![0; 256];
    let mut control = UsbControl {
        request_type: DEVICE_TO_HOST,
        request: GET_DESCRIPTOR,
        value: BOS,
        index: 0,
        length: answer.len() as u16,
        timeout_ms: 1000,
        data: answer.as_mut_ptr(),
    };
    // SAFETY: the kernel writes at most `length` bytes to `data`, which lives until the call returns.
    let got = unsafe { usb_control(file.as_raw_fd(), &mut control) }.map_err(io::Error::from)?;
    answer.truncate(usize::try_from(got).unwrap_or(0));
    Ok(answer)
}

nix::ioctl_readwrite!(videocore_property, 100, 0, *mut u32);

/// Asks the firmware of a Raspberry Pi what `vcgencmd` asks: one command, its answer as text.
/// raspberrypi/utils, vcgencmd.c: size, 0, tag, 4096, 0, 0, 4096 bytes of text, end tag.
/// # Errors
/// Those of open(2) on `/dev/vcio_gencmd` and `/dev/vcio`: no other board has them.
pub fn videocore(command: &str) -> io::Result<String> {
    const GET_GENCMD_RESULT: u32 = 0x0003_0080;
    const TEXT: usize = 4096;
    const HEAD: usize = 6;
    let file = File::open("/dev/vcio_gencmd").or_else(|_| File::open("/dev/vcio"))?;
    let mut message = vec![0_u32; HEAD + TEXT / 4 + 1];
    message[0] = (message.len() * 4) as u32;
    message[2] = GET_GENCMD_RESULT;
    message[3] = TEXT as u32;
    for (at, byte) in command.bytes().take(TEXT - 1).enumerate() {
        message[HEAD + at / 4] |= u32::from(byte) << (8 * (at % 4));
    }
    // SAFETY: the driver copies as many bytes as the first word says, the length of `message`, in
    // both directions; the request's number bears the size of a pointer, its argument is the message.
    unsafe { videocore_property(file.as_raw_fd(), message.as_mut_ptr().cast()) }
        .map_err(io::Error::from)?;
    let text = message[HEAD..].iter().flat_map(|word| word.to_le_bytes());
    let text: Vec<u8> = text.take_while(|&byte| byte != 0).collect();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

nix::ioctl_none!(blkflsbuf, 0x12, 97);

/// BLKFLSBUF of linux/fs.h: writes out and drops the page cache of a block device.
pub fn flush_buffers(file: &File) -> io::Result<()> {
    // SAFETY: no argument.
    unsafe { blkflsbuf(file.as_raw_fd()) }.map_err(io::Error::from)?;
    Ok(())
}

/// Keeps `buffer` in memory as long as it lives: mlock(2).
pub fn lock_memory(buffer: &Buffer) -> io::Result<()> {
    // SAFETY: the range is the buffer's own; locking changes no content.
    checked(unsafe { libc::mlock(buffer.start.as_ptr().cast(), buffer.len) }.into())?;
    Ok(())
}

/// fork(2): the child's id, and in the child none.
pub fn fork() -> io::Result<Option<nix::unistd::Pid>> {
    // SAFETY: we have no other thread, which could hold a lock that the child needs.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { child } => Ok(Some(child)),
        nix::unistd::ForkResult::Child => Ok(None),
    }
}

/// `struct nvme_passthru_cmd` of linux/nvme_ioctl.h.
#[repr(C)]
#[derive(Default)]
pub struct NvmeCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_length: u32,
    data_length: u32,
    cdw10: u32,
    rest: [u32; 5],
    timeout_ms: u32,
    result: u32,
}

nix::ioctl_readwrite!(nvme_admin, b'N', 0x41, NvmeCommand);
const _: () = assert!(size_of::<NvmeCommand>() == 72);

/// An NVMe disk's SMART / Health Information: Get Log Page 02h, which every controller must have.
/// # Errors
/// Those of the ioctl; a status of the controller as `EIO`.
pub fn nvme_health_log(disk: &File, log: &mut [u8; 512]) -> io::Result<()> {
    const GET_LOG_PAGE: u8 = 2;
    let mut command = NvmeCommand {
        opcode: GET_LOG_PAGE,
        namespace: u32::MAX,
        address: log.as_mut_ptr() as usize as u64,
        data_length: log.len() as u32,
        cdw10: 0x007f_0002, // 128 words, log 02h
        timeout_ms: 2000,
        ..NvmeCommand::default()
    };
    // SAFETY: the kernel writes `data_length` bytes to `address`, which lives until the call returns.
    match unsafe { nvme_admin(disk.as_raw_fd(), &mut command) }.map_err(io::Error::from)? {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EIO)),
    }
}

/// `struct sg_io_hdr` of scsi/sg.h.
#[repr(C)]
struct ScsiRequest {
    interface: libc::c_int,
    direction: libc::c_int,
    command_length: u8,
    sense_length: u8,
    iovec_count: u16,
    data_length: u32,
    data: *mut u8,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    pack_id: libc::c_int,
    user: *mut u8,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_written: u8,
    host_status: u16,
    driver_status: u16,
    residual: libc::c_int,
    duration: u32,
    info: u32,
}

/// Sends one SCSI command that reads `data`, or nothing where that is empty; the sense data is returned.
/// # Errors
/// Those of the ioctl; `EIO` where the host or the disk refused a command that has data.
pub fn scsi_command(disk: &File, command: &[u8; 16], data: &mut [u8]) -> io::Result<Vec<u8>> {
    const SG_IO: libc::c_ulong = 0x2285;
    const NO_DATA: libc::c_int = -1;
    const FROM_DISK: libc::c_int = -3;
    let mut sense = vec![0; 64];
    let mut request = ScsiRequest {
        interface: libc::c_int::from(b'S'),
        direction: if data.is_empty() { NO_DATA } else { FROM_DISK },
        command_length: command.len() as u8,
        sense_length: sense.len() as u8,
        iovec_count: 0,
        data_length: data.len() as u32,
        data: data.as_mut_ptr(),
        command: command.as_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms: 2000,
        flags: 0,
        pack_id: 0,
        user: std::ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_written: 0,
        host_status: 0,
        driver_status: 0,
        residual: 0,
        duration: 0,
        info: 0,
    };
    // SAFETY: the kernel writes at most `data_length` and `sense_length` bytes, all of it before the
    // call returns, and reads `command_length` bytes. The type of the request's number differs
    // between C libraries.
    checked(unsafe { libc::ioctl(disk.as_raw_fd(), SG_IO as _, &mut request) }.into())?;
    let refused = request.host_status != 0 || (request.status != 0 && !data.is_empty());
    if refused {
        return Err(io::Error::from_raw_os_error(libc::EIO));
    }
    sense.truncate(usize::from(request.sense_written));
    Ok(sense)
}

/// `struct fiemap` of linux/fiemap.h without its extents.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct FiemapHead {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

/// `struct fiemap_extent` of linux/fiemap.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RawExtent {
    /// Bytes from the start of the file.
    pub logical: u64,
    /// Bytes from the start of the file system's device (btrfs: in its own address space).
    pub physical: u64,
    pub length: u64,
    reserved: [u64; 2],
    /// FIEMAP_EXTENT_*.
    pub flags: u32,
    reserved_words: [u32; 3],
}

/// Extents of one call: 14 KiB of buffer.
const FIEMAP_EXTENTS: usize = 256;

#[repr(C)]
struct Fiemap {
    head: FiemapHead,
    extents: [RawExtent; FIEMAP_EXTENTS],
}

const _: () = assert!(size_of::<FiemapHead>() == 32 && size_of::<RawExtent>() == 56);

// The request's number bears the size of the head alone; the extents follow it.
nix::ioctl_readwrite!(fiemap_request, b'f', 11, FiemapHead);

/// The next extents of `file` from byte `start` on, after its data was written out; none at its end.
/// # Errors
/// `EOPNOTSUPP` where the file system gives none (vfat, exfat).
pub fn extents(file: &File, start: u64) -> io::Result<Vec<RawExtent>> {
    const FIEMAP_FLAG_SYNC: u32 = 1;
    let mut map = Box::new(Fiemap {
        head: FiemapHead {
            start,
            length: u64::MAX - start,
            flags: FIEMAP_FLAG_SYNC,
            count: FIEMAP_EXTENTS as u32,
            ..FiemapHead::default()
        },
        extents: [RawExtent::default(); FIEMAP_EXTENTS],
    });
    // SAFETY: the kernel writes the head and at most `count` extents, which follow it in `map`; the
    // pointer is derived from the whole of it.
    unsafe { fiemap_request(file.as_raw_fd(), (&raw mut *map).cast()) }.map_err(io::Error::from)?;
    let mapped = (map.head.mapped as usize).min(FIEMAP_EXTENTS);
    Ok(map.extents[..mapped].to_vec())
}
