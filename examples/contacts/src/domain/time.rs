use millstream_core::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A time that is written as `2026-02-09T11:07:37.302Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339())
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = Timestamp::from_rfc3339(&text);
        time.map(Self).ok_or_else(|| de::Error::custom(format!("{text:?} is not a time")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_comes_back_as_it_was_written() {
        let time = Time(Timestamp::from_millis(1_770_635_257_302));
        let text = serde_json::to_string(&time).unwrap();
        assert_eq!(text, "\"2026-02-09T11:07:37.302Z\"");
        assert_eq!(serde_json::from_str::<Time>(&text).unwrap(), time);
        assert!(serde_json::from_str::<Time>("\"yesterday\"").is_err());
    }
}
