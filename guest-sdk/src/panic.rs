//! What a panic leaves behind: one line on standard error, which the host puts into the proxy's log. Messages would not
//! do: the host drops what was sent in a turn that traps.

use std::any::Any;
use std::panic::Location;

#[cfg(target_family = "wasm")]
pub(crate) fn install_hook() {
    std::panic::set_hook(Box::new(|info| {
        crate::log::print(&line(info.payload(), info.location()))
    }));
}

fn line(payload: &dyn Any, location: Option<&Location<'_>>) -> String {
    let message = payload.downcast_ref::<&str>().copied();
    let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = crate::log::one_line(message.unwrap_or("(no message)"));
    match location {
        Some(location) => format!("panicked at {location}: {message}"),
        None => format!("panicked: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_line_with_message_and_place() {
        let here = Location::caller();
        assert_eq!(
            line(&"two\nlines", Some(here)),
            format!("panicked at {here}: two\\nlines")
        );
        assert_eq!(line(&"owned".to_owned(), None), "panicked: owned");
        assert_eq!(line(&7, None), "panicked: (no message)");
    }
}
