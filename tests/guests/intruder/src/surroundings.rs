//! What the guest tries outside of the channel: files, clocks, random numbers, its environment.

#![allow(
    unsafe_code,
    reason = "the standard library has no symbolic links and no random numbers on this target"
)]

use crate::script::Outside;
use std::ffi::{CString, c_char, c_int};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::time::{Duration, Instant, SystemTime};

mod random {
    wit_bindgen::generate!({
        inline: "
            package wasi:random@0.2.0;
            interface random { get-random-bytes: func(len: u64) -> list<u8>; get-random-u64: func() -> u64; }
            interface insecure { get-insecure-random-bytes: func(len: u64) -> list<u8>; get-insecure-random-u64: func() -> u64; }
            world gambler { import random; import insecure; }
        ",
        world: "gambler",
    });
    pub(crate) use wasi::random::insecure::get_insecure_random_bytes;
    pub(crate) use wasi::random::random::get_random_bytes;
}

unsafe extern "C" {
    fn symlink(target: *const c_char, path: *const c_char) -> c_int;
}

pub(crate) fn act(what: &Outside) {
    match what {
        Outside::Print(text) => println!("{text}"),
        Outside::Flood(text, times) => (0..*times).for_each(|_| println!("{text}")),
        Outside::Exit(status) => std::process::exit(*status),
        Outside::Sleep(milliseconds) => std::thread::sleep(Duration::from_millis(*milliseconds)),
        Outside::Spin {} => {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(1_000_000) {}
        }
        Outside::Random(bytes) => println!("got {} random bytes", random::get_random_bytes(*bytes).len()),
        Outside::InsecureRandom(bytes) => {
            println!("got {} random bytes", random::get_insecure_random_bytes(*bytes).len());
        }
        Outside::Environment {} => {
            let all: Vec<_> = std::env::vars()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            println!("environment [{}], {} arguments", all.join(","), std::env::args().len());
        }
        Outside::Input {} => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            println!("input: {}", shown(read.map(|_| text)));
        }
        Outside::File(words) => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            println!("{}: {}", words.join(" "), shown(file(&words)));
        }
        Outside::OpenMany(path) => {
            let mut open = Vec::new();
            let error = loop {
                match File::open(path) {
                    Ok(file) => open.push(file),
                    Err(error) => break error,
                }
            };
            println!("opened {}, then {error}", open.len());
            std::mem::forget(open);
        }
    }
}

fn shown(outcome: Result<String>) -> String {
    match outcome {
        Ok(text) => format!("ok {text}"),
        Err(error) => format!("failed, {}", error.kind()),
    }
}

fn file(words: &[&str]) -> Result<String> {
    match words {
        ["read", path] => return fs::read_to_string(path),
        ["list", path] => {
            let entries = fs::read_dir(path)?;
            let mut names: Vec<String> = entries
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect::<Result<_>>()?;
            names.sort();
            return Ok(names.join(" "));
        }
        ["write", path, text] => fs::write(path, text)?,
        ["append", path, text] => OpenOptions::new().append(true).open(path)?.write_all(text.as_bytes())?,
        ["truncate", path] => OpenOptions::new().write(true).truncate(true).open(path)?.set_len(0)?,
        ["set-length", path] => File::open(path)?.set_len(0)?,
        ["set-times", path] => {
            let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
            File::open(path)?.set_times(times)?;
        }
        ["remove", path] => fs::remove_file(path)?,
        ["make-folder", path] => fs::create_dir(path)?,
        ["remove-folder", path] => fs::remove_dir(path)?,
        ["rename", from, to] => fs::rename(from, to)?,
        ["link", from, to] => fs::hard_link(from, to)?,
        ["symlink", target, path] => {
            let (target, path) = (CString::new(*target)?, CString::new(*path)?);
            // SAFETY: both are C strings that live until the call returns.
            if unsafe { symlink(target.as_ptr(), path.as_ptr()) } != 0 {
                return Err(Error::last_os_error());
            }
        }
        _ => return Err(Error::from(ErrorKind::InvalidInput)),
    }
    Ok(String::new())
}
