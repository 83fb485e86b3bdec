//! A panic of Consort's own code while it runs a proxy costs that proxy its instance, and nobody else anything.

use crate::fault::{Class, Fault, Phase};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Runs what a proxy does; a panic in it becomes a fault.
pub(crate) async fn contained<T>(phase: Phase, run: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let mut run = pin!(run);
    // Nothing of what it broke off in is looked at again: the instance is dropped with the future.
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context))) {
            Ok(poll) => poll,
            Err(panic) => Poll::Ready(Err(fault(phase, &*panic))),
        },
    )
    .await
}

fn fault(phase: Phase, panic: &(dyn std::any::Any + Send)) -> Fault {
    let words = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(words), _) => words,
        (_, Some(words)) => words.as_str(),
        _ => "no reason",
    };
    let cause = format!("Consort itself panicked over it ({words}); please report this as a fault of Consort");
    Fault::new(Class::Host, phase, cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_fault_of_the_host_and_nothing_else_changes() {
        let fault = contained::<()>(Phase::Receive, async {
            tokio::task::yield_now().await;
            panic!("no {}", "way")
        });
        let fault = fault.await.unwrap_err();
        assert_eq!((fault.class, fault.phase), (Class::Host, Phase::Receive));
        assert!(fault.cause.contains("no way"), "{fault}");
        assert_eq!(contained(Phase::Start, async { Ok(7) }).await.unwrap(), 7);
    }
}
