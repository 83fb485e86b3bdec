//! Today's date. Knows nothing of prompts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The date in UTC, as `2026-11-30`.
pub(crate) fn today() -> String {
    // A clock before 1970 is no clock; the epoch is as good as anything then.
    date(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
}

/// The date so long after 1970-01-01. Counts in eras of 400 years that begin in March, so that a leap day ends its year.
fn date(since_epoch: Duration) -> String {
    const DAYS_IN_ERA: u64 = 146_097;
    // From 0000-03-01 to 1970-01-01.
    let days = since_epoch.as_secs() / 86_400 + 719_468;
    let (era, day_of_era) = (days / DAYS_IN_ERA, days % DAYS_IN_ERA);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // March is month 0; five months have 153 days, over and over.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year_of_era + later)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_around_leap_days_and_centuries() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (86_399, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_709_164_800, "2024-02-29"),
            (1_767_225_599, "2025-12-31"),
            (1_796_083_199, "2026-11-30"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date(Duration::from_secs(seconds)), expected, "{seconds}");
        }
    }
}
