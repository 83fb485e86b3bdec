//! A proxy that means harm before it has had a message: the chain is not set up, and `initialize` is answered with the reason.

use super::{Hostile, goes_on, goes_past, hit, seen, written};
use consort::manifest;
use consort_tests::Directory;
use consort_tests::guests::guest;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::{self, File};

#[test]
fn the_written_proxy_passes_on_if_nothing_is_changed() {
    let (mut client, mut agent) = Hostile::written(&[]).start();
    client.send_json(&hit("hit"));
    let asked = agent.expect();
    assert_eq!(asked["method"], "_hit");
    agent.answer(&asked, &json!({}));
    assert_eq!(client.expect()["id"], "hit");
    goes_on(&mut client, &mut agent);
    let said = client.standard_error();
    assert!(!said.contains("failed"), "{said}");
}

#[test]
fn what_is_no_proxy_is_named_in_the_answer_to_initialize() {
    let directory = Directory::new();
    for (name, bytes, words) in [
        ("empty.wasm", Vec::new(), "is empty"),
        ("garbage.wasm", b"\x7fELF\x02".repeat(50_000), "is not WebAssembly"),
        ("text.wasm", b"(component)".to_vec(), "is text"),
        (
            "module.wasm",
            wat::parse_str("(module)").unwrap(),
            "core WebAssembly module",
        ),
        ("other.wasm", wat::parse_str("(component)").unwrap(), "another world"),
        ("cut.wasm", written(&[])[..200].to_vec(), "damaged or incomplete"),
    ] {
        let file = directory.file(name, bytes);
        let message = Hostile::of(file).refused();
        for word in ["cannot be loaded", name, words] {
            assert!(message.contains(word), "{word}: {message}");
        }
    }
}

#[test]
fn a_component_over_the_cap_is_not_read() {
    let directory = Directory::new();
    let file = directory.path().join("large.wasm");
    File::create(&file)
        .and_then(|file| file.set_len((128 << 20) + 1))
        .expect("a file with a hole can be made");
    let message = Hostile::of(file).refused();
    assert!(message.contains("is larger than 128 MiB"), "{message}");
}

#[test]
fn unknown_imports_are_named_and_nothing_is_run() {
    let import = r#"(import "evil:thing/do@1.0.0" (instance))"#;
    let endless = "(start $forever)";
    let message = Hostile::written(&[("IMPORTS", import), ("PARTS", endless)]).refused();
    assert!(message.contains("wants evil:thing/do@1.0.0"), "{message}");
}

#[test]
fn more_than_its_memory_is_not_given_to_begin_with() {
    for (parts, settings) in [
        ("(memory 32768)", ""),
        ("(memory 640) (memory 640)", ""),
        ("(memory 640) (table 5000000 funcref)", ""),
        ("(memory 20)", "limits.memory = \"1 MiB\""),
    ] {
        let message = Hostile::written(&[("PARTS", parts)]).with(settings).refused();
        assert!(message.contains("did not start (memory)"), "{parts}: {message}");
    }
}

#[test]
fn many_parts_are_not_made() {
    let memories = "(memory 0)".repeat(17);
    let tables = "(table 0 funcref)".repeat(65);
    let instances = format!(
        "(core module $more){}",
        "(core instance (instantiate $more))".repeat(65)
    );
    for (place, what) in [("PARTS", &memories), ("PARTS", &tables), ("MORE", &instances)] {
        let message = Hostile::written(&[(place, what)]).refused();
        assert!(message.contains("did not start (memory)"), "{what:.50}: {message}");
    }
}

#[test]
fn what_would_cost_far_more_than_its_size_is_not_compiled() {
    let globals = "(global i64 (i64.const 1))".repeat(60_000);
    let nested = format!("{}{}", "(component ".repeat(20), ")".repeat(20));
    let tens = (0..6).fold(String::from("(component $c)"), |inner, _| {
        format!("(component $c {inner} {})", "(instance (instantiate $c))".repeat(10))
    });
    let function = format!(
        "(func (param i32) (local {}) {})",
        "i64 ".repeat(20_000),
        "(nop)".repeat(20_000)
    );
    for (place, what, words) in [
        ("PARTS", &globals, "60000 globals in a module"),
        ("MORE", &nested, "levels of components in each other"),
        ("MORE", &tens, "instances"),
        ("PARTS", &function, "20000 locals in a function"),
    ] {
        let message = Hostile::written(&[(place, what)]).refused();
        assert!(message.contains("cannot be loaded"), "{message}");
        assert!(message.contains(words), "{words}: {message}");
    }
}

#[test]
fn one_that_never_starts_is_given_up() {
    let cpu = "limits.cpu = \"200 ms\"";
    let time = "limits.time = \"200 ms\"";
    for (hostile, class) in [
        (Hostile::written(&[("PARTS", "(start $forever)")]).with(cpu), "cpu"),
        (Hostile::written(&[("START", "(call $forever)")]).with(cpu), "cpu"),
        (Hostile::guest("sleep-in-start", 3_600_000).with(time), "timeout"),
    ] {
        let message = hostile.refused();
        assert!(message.contains(&format!("did not start ({class})")), "{message}");
    }
}

#[test]
fn a_start_that_answers_nonsense_is_a_broken_contract() {
    for (name, start) in [
        ("no such place", "(return (i32.const -16))"),
        ("an odd place", "(return (i32.const 17))"),
        ("no such case", "(i32.store8 (i32.const 16) (i32.const 9))"),
        ("a list without end", "(i32.store (i32.const 24) (i32.const -1))"),
        ("no such source", "(i32.store8 (i32.const 48) (i32.const 7))"),
        ("the host as source", "(i32.store8 (i32.const 48) (i32.const 2))"),
        ("no UTF-8", "(i32.store (i32.const 52) (i32.const 80))"),
        ("the same 16 MiB 4,000 times", MUCH_OF_LITTLE),
    ] {
        let message = Hostile::written(&[("START", start)]).refused();
        assert!(message.contains("did not start (protocol)"), "{name}: {message}");
    }
}

/// A list of interests whose methods are all the same large text, which the host would have to copy for each of them.
const MUCH_OF_LITTLE: &str = "
    (local $at i32)
    (drop (memory.grow (i32.const 512)))
    (i32.store (i32.const 20) (i32.const 65536))
    (i32.store (i32.const 24) (i32.const 4000))
    (local.set $at (i32.const 65536))
    (loop $next
      (i32.store offset=4 (local.get $at) (i32.const 1048576))
      (i32.store offset=8 (local.get $at) (i32.const 16777216))
      (local.set $at (i32.add (local.get $at) (i32.const 16)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 129536))))";

#[test]
fn too_many_interests_and_a_long_reason_are_not_taken() {
    let message = Hostile::guest("interests", 100_000).refused();
    assert!(
        message.contains("it has 100001 interests; 1000 is the most"),
        "{message}"
    );
    let message = Hostile::guest("reason", 10 << 20).refused();
    assert!(
        message.contains("does not accept its configuration: nnn"),
        "{message:.200}"
    );
    assert!(message.len() < 10_000, "{} bytes", message.len());
}

/// The guest `hostile` with a manifest of its own.
fn with_manifest(manifest: &Value) -> Hostile {
    let component = fs::read(guest("hostile")).expect("it was built");
    let component = manifest::attach(&component, manifest.to_string().as_bytes()).expect("it is a component");
    let directory = Directory::new();
    let file = directory.file("asks.wasm", component);
    Hostile::in_directory(directory, file)
        .with("config = { do = \"count\" }")
        .without_grants()
}

#[test]
fn a_manifest_that_asks_for_everything_gets_what_is_ordinary() {
    let everything = json!({"grants": {
        "everything": "please", "read-prompts": "to read", "file:**": "please", "file:../secret": "please", "directory:/": "please",
    }});
    let (mut client, mut agent) = with_manifest(&everything).start();
    // It may read prompts, so it is shown them, but not to answer them.
    goes_past(&mut client, &mut agent);
    client.expect_standard_error("../secret");
    goes_on(&mut client, &mut agent);
    let ordinary = json!({"grants": {"read-prompts": "to read", "change-answers": "to answer"}});
    let (mut client, _agent) = with_manifest(&ordinary).start();
    assert_eq!(seen(&mut client, "GO"), ["1"]);
}

#[test]
fn a_manifest_that_asks_for_much_memory_gets_a_little_more() {
    let manifest = json!({"limits": {"memory": "4 GiB"}}).to_string();
    for (pages, fits) in [("4000", true), ("8000", false)] {
        let proxy = written(&[("PARTS", &format!("(memory {pages})"))]);
        let directory = Directory::new();
        let attached = manifest::attach(&proxy, manifest.as_bytes()).expect("it is a component");
        let file = directory.file("asks.wasm", attached);
        let hostile = Hostile::in_directory(directory, file);
        match fits {
            true => drop(hostile.start()),
            false => {
                let message = hostile.refused();
                assert!(message.contains("did not start (memory)"), "{message}");
            }
        }
    }
}

/// A component with many functions of many instructions.
fn long_to_compile() -> Vec<u8> {
    const FUNCTIONS: usize = 4_000;
    const STEPS: usize = 1_000;
    let number = |mut number: usize| {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    };
    let section = |id: u8, content: &[u8]| [&[id], &number(content.len())[..], content].concat();
    // local.get 0, i64.mul, i64.const 7, i64.xor, again and again.
    let steps = b"\x20\x00\x7e\x42\x07\x85".repeat(STEPS);
    let body = [b"\x00\x20\x00", &steps[..], b"\x0b"].concat();
    let body = [&number(body.len())[..], &body].concat();
    let types = section(1, b"\x01\x60\x01\x7e\x01\x7e");
    let functions = section(3, &[number(FUNCTIONS), vec![0; FUNCTIONS]].concat());
    let bodies = section(10, &[number(FUNCTIONS), body.repeat(FUNCTIONS)].concat());
    let module = [b"\0asm\x01\0\0\0", &types[..], &functions, &bodies].concat();
    [written(&[]), section(1, &module)].concat()
}

#[test]
fn one_that_is_compiled_for_long_does_not_keep_the_command_from_ending() {
    let directory = Directory::new();
    let file = directory.file("long.wasm", long_to_compile());
    let hostile = Hostile::in_directory(directory, file);
    let mut client = hostile.fresh();
    client.expect_standard_error("compiling proxies");
    let pid = i32::try_from(client.pid())
        .ok()
        .and_then(Pid::from_raw)
        .expect("it runs");
    kill_process(pid, Signal::TERM).expect("it is ours");
    assert_eq!(client.wait().code(), Some(128 + 15));
    let said = client.standard_error();
    assert!(!said.contains("compiled in"), "it was still at it: {said}");
}
