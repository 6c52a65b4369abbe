//! What the system offers and no safe wrapper does: starting a process in a session of its own without the
//! fork path, and waiting for a descriptor of any kind. All of the crate's `unsafe` is in this file.

use std::{
    ffi::{CStr, CString, c_char, c_int},
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
#[cfg(target_os = "linux")]
use tokio::io::{Interest, unix::AsyncFd};

/// What the new process is made of. The descriptors become its standard input, output and error.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) program: &'a CStr,
    pub(crate) arguments: &'a [CString],
    pub(crate) environment: &'a [CString],
    pub(crate) directory: Option<&'a CStr>,
    pub(crate) stdio: [BorrowedFd<'a>; 3],
}

/// Why there is no new process.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The system's library cannot start a process in another working directory.
    NoDirectory,
    System(io::Error),
}

#[cfg(target_os = "linux")]
const SETSID: c_int = libc::POSIX_SPAWN_SETSID as c_int;
#[cfg(target_os = "macos")]
const SETSID: c_int = 0x0400;

/// macOS can close everything that is not passed on purpose by one flag; on Linux it is a file action.
#[cfg(target_os = "linux")]
const CLOSE_THE_REST: c_int = 0;
#[cfg(target_os = "macos")]
const CLOSE_THE_REST: c_int = libc::POSIX_SPAWN_CLOEXEC_DEFAULT;

/// Starts a process in a session of its own, with default signal handling and no signal blocked.
///
/// No descriptor of ours but the three named reaches it, also where somebody forgot to mark one
/// close-on-exec; with a C library that lacks the means, the mark alone counts. Returns its pid once
/// the program runs. None of the three may itself be descriptor 0, 1 or 2.
#[expect(unsafe_code, reason = "no safe wrapper knows sessions and working directories")]
pub(crate) fn spawn(request: &Request<'_>) -> Result<u32, Failure> {
    let mut actions = Actions::new().map_err(Failure::System)?;
    for (number, descriptor) in (0..).zip(&request.stdio) {
        actions.duplicate(*descriptor, number).map_err(Failure::System)?;
    }
    if let Some(directory) = request.directory {
        actions.enter(directory)?;
    }
    actions.close_from(3).map_err(Failure::System)?;
    let attributes = Attributes::new().map_err(Failure::System)?;

    let arguments = pointers(request.arguments);
    let environment = pointers(request.environment);
    let mut pid = 0;
    // SAFETY: the program is a C string; both arrays end in a null pointer and hold pointers to C
    // strings that outlive the call, which does not write to them; actions and attributes are
    // initialised.
    let code = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            request.program.as_ptr(),
            &raw const actions.0,
            &raw const attributes.0,
            arguments.as_ptr(),
            environment.as_ptr(),
        )
    };
    check(code).map_err(Failure::System)?;
    Ok(u32::try_from(pid).expect("a started process has a positive pid"))
}

/// Makes tokio tell when `descriptor` is readable.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the function takes any type that can name a descriptor")]
pub(crate) fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, stays open while it lives, and never names another descriptor.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

fn check(code: c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

fn pointers(strings: &[CString]) -> Vec<*mut c_char> {
    strings.iter().map(|string| string.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
}

/// What happens in the new process before the program runs.
struct Actions(libc::posix_spawn_file_actions_t);

#[expect(unsafe_code, reason = "no safe wrapper knows sessions and working directories")]
impl Actions {
    fn new() -> io::Result<Self> {
        let mut actions = MaybeUninit::uninit();
        // SAFETY: the function initialises what the pointer points to, and we use it only on success.
        let code = unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) };
        check(code)?;
        // SAFETY: initialised by the successful call above.
        Ok(Self(unsafe { actions.assume_init() }))
    }

    fn duplicate(&mut self, from: BorrowedFd<'_>, to: c_int) -> io::Result<()> {
        // SAFETY: the actions are initialised; the numbers are only recorded.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&raw mut self.0, from.as_raw_fd(), to) })
    }

    fn enter(&mut self, directory: &CStr) -> Result<(), Failure> {
        let function = library::add_chdir().ok_or(Failure::NoDirectory)?;
        // SAFETY: the actions are initialised, and the function copies the C string.
        check(unsafe { function(&raw mut self.0, directory.as_ptr()) }).map_err(Failure::System)
    }

    fn close_from(&mut self, first: c_int) -> io::Result<()> {
        match library::add_close_from() {
            // SAFETY: the actions are initialised; the number is only recorded.
            Some(function) => check(unsafe { function(&raw mut self.0, first) }),
            None => Ok(()),
        }
    }
}

#[expect(unsafe_code, reason = "no safe wrapper knows sessions and working directories")]
impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: initialised, and not used after this.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}

struct Attributes(libc::posix_spawnattr_t);

#[expect(unsafe_code, reason = "no safe wrapper knows sessions and working directories")]
impl Attributes {
    fn new() -> io::Result<Self> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the function initialises what the pointer points to, and we use it only on success.
        let code = unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) };
        check(code)?;
        // SAFETY: initialised by the successful call above. From here on `Drop` destroys it.
        let mut this = Self(unsafe { attributes.assume_init() });

        let flags = SETSID | CLOSE_THE_REST | libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` and `sigfillset` initialise the sets they are given and cannot fail;
        // the attributes are initialised, and the sets are copied into them. The flags fit a short.
        unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigfillset(all.as_mut_ptr());
            // These two cannot be changed, and asking for it is an error to some systems.
            libc::sigdelset(all.as_mut_ptr(), libc::SIGKILL);
            libc::sigdelset(all.as_mut_ptr(), libc::SIGSTOP);
            check(libc::posix_spawnattr_setsigmask(&raw mut this.0, none.as_ptr()))?;
            check(libc::posix_spawnattr_setsigdefault(&raw mut this.0, all.as_ptr()))?;
            check(libc::posix_spawnattr_setflags(&raw mut this.0, flags as libc::c_short))?;
        }
        Ok(this)
    }
}

#[expect(unsafe_code, reason = "no safe wrapper knows sessions and working directories")]
impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised, and not used after this.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}

/// The two file actions that are younger than the oldest C libraries a program of ours may meet.
mod library {
    use super::{c_char, c_int};

    type AddChdir = unsafe extern "C" fn(*mut libc::posix_spawn_file_actions_t, *const c_char) -> c_int;
    type AddCloseFrom = unsafe extern "C" fn(*mut libc::posix_spawn_file_actions_t, c_int) -> c_int;

    /// glibc has it since 2.29.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "a symbol that may be absent must be looked up")]
    pub(super) fn add_chdir() -> Option<AddChdir> {
        let function = find(&FOUND.0, c"posix_spawn_file_actions_addchdir_np")?;
        // SAFETY: this is the type under which glibc declares the function of that name.
        Some(unsafe { std::mem::transmute::<usize, AddChdir>(function) })
    }

    /// glibc has it since 2.34.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "a symbol that may be absent must be looked up")]
    pub(super) fn add_close_from() -> Option<AddCloseFrom> {
        let function = find(&FOUND.1, c"posix_spawn_file_actions_addclosefrom_np")?;
        // SAFETY: this is the type under which glibc declares the function of that name.
        Some(unsafe { std::mem::transmute::<usize, AddCloseFrom>(function) })
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    static FOUND: (std::sync::OnceLock<usize>, std::sync::OnceLock<usize>) =
        (std::sync::OnceLock::new(), std::sync::OnceLock::new());

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "a symbol that may be absent must be looked up")]
    fn find(found: &std::sync::OnceLock<usize>, name: &std::ffi::CStr) -> Option<usize> {
        let address = *found.get_or_init(|| {
            // SAFETY: looks a C string up among the loaded libraries, and changes nothing.
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as usize }
        });
        (address != 0).then_some(address)
    }

    /// In macOS since 10.15, and in the musl that Rust ships.
    #[cfg(any(target_os = "macos", all(target_os = "linux", not(target_env = "gnu"))))]
    #[expect(unsafe_code, reason = "not declared for every system by the C bindings")]
    pub(super) fn add_chdir() -> Option<AddChdir> {
        unsafe extern "C" {
            fn posix_spawn_file_actions_addchdir_np(
                actions: *mut libc::posix_spawn_file_actions_t,
                path: *const c_char,
            ) -> c_int;
        }
        Some(posix_spawn_file_actions_addchdir_np)
    }

    #[cfg(any(target_os = "macos", all(target_os = "linux", not(target_env = "gnu"))))]
    pub(super) fn add_close_from() -> Option<AddCloseFrom> {
        None
    }
}
