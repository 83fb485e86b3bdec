//! The harness itself: the smallest of its measures, with next to nothing to do, and content verified.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn consort_is_measured_and_verified() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("smallest");
    let output = Command::new(env!("CARGO_BIN_EXE_consort-bench"))
        .args([
            "--tiny",
            "--no-build",
            "--proxies",
            "0,1",
            "--contestants",
            "relay,consort",
        ])
        .args(["--only", "traffic,permission,many", "--out"])
        .arg(&out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said, "", "nobody watches, so there is nothing to say");
    let results: Value = serde_json::from_slice(&fs::read(out.join("results.json")).unwrap()).unwrap();
    let figure = |measure: &str, contestant: &str, at: u64| {
        let series = results["measures"].as_array().unwrap().iter();
        let mut series = series.filter(|one| one["measure"] == measure && one["contestant"] == contestant);
        let points = series
            .next()
            .map_or(&Value::Null, |one| &one["points"])
            .as_array()
            .unwrap()
            .iter();
        let mut points = points.filter(|point| point["at"] == at);
        points.next().unwrap()["median"].as_f64().unwrap()
    };
    for proxies in [0, 1] {
        for measure in ["round-trip", "updates", "permission", "in-flight-64", "memory-idle"] {
            assert!(figure(measure, "consort", proxies) > 0.0, "{measure}");
        }
        assert_eq!(figure("overtaken", "consort", proxies), 0.0);
    }
    assert!(figure("round-trip", "relay", 0) > 0.0);
    assert!(figure("many-memory", "consort", 3) > 0.0);
    for file in ["table.md", "plot.svg"] {
        assert!(fs::metadata(out.join(file)).unwrap().len() > 500, "{file}");
    }
}
