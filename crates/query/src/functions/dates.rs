//! Functions of dates and times. The time is the same in all of a page.

use crate::datetime::{Fields, Moment, TICKS_PER_MILLISECOND, Unit};
use crate::error::Result;
use crate::functions::{Context, Function};
use crate::value::{Number, Value};

const NANOSECONDS_PER_TICK: i64 = 100;

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::new("DateTimeAdd", 3, 3, |_, it| {
        let [unit, count, moment] = it else { return Ok(Value::Undefined) };
        optional(add(unit, count, moment))
    }),
    Function::new("DateTimeBin", 2, 4, |_, it| optional(bin(it))),
    Function::new("DateTimeDiff", 3, 3, |_, it| {
        let [unit, from, to] = it else { return Ok(Value::Undefined) };
        optional(difference(unit, from, to))
    }),
    Function::new("DateTimeFromParts", 3, 7, |_, it| optional(from_parts(it))),
    Function::new("DateTimePart", 2, 2, |_, it| {
        let [unit, moment] = it else { return Ok(Value::Undefined) };
        optional(part(unit, moment))
    }),
    Function::new("DateTimeToTicks", 1, 1, |_, it| {
        optional(it.first().and_then(moment).map(|it| integer(it.ticks())))
    }),
    Function::new("DateTimeToTimestamp", 1, 1, |_, it| {
        let millis = |it: Moment| integer(it.ticks().div_euclid(TICKS_PER_MILLISECOND));
        optional(it.first().and_then(moment).map(millis))
    }),
    Function::new("DAY", 1, 1, |_, it| optional(field(it, Unit::Day))),
    Function::new("GetCurrentDateTime", 0, 0, |context, _| optional(now(context).map(text))),
    Function::new("GetCurrentDateTimeStatic", 0, 0, |context, _| optional(now(context).map(text))),
    Function::new("GetCurrentTicks", 0, 0, |context, _| optional(now(context).map(ticks))),
    Function::new("GetCurrentTicksStatic", 0, 0, |context, _| optional(now(context).map(ticks))),
    Function::new("GetCurrentTimestamp", 0, 0, |context, _| optional(millis(context))),
    Function::new("GetCurrentTimestampStatic", 0, 0, |context, _| optional(millis(context))),
    Function::new("MONTH", 1, 1, |_, it| optional(field(it, Unit::Month))),
    Function::new("TicksToDateTime", 1, 1, |_, it| {
        // Ticks of our century are beyond the whole numbers that a double holds exactly.
        let ticks = it.first().and_then(Value::as_long);
        optional(ticks.and_then(Moment::from_ticks).map(text))
    }),
    Function::new("TimestampToDateTime", 1, 1, |_, it| {
        let millis = it.first().and_then(Value::as_integer);
        let ticks = millis.and_then(|it| it.checked_mul(TICKS_PER_MILLISECOND));
        optional(ticks.and_then(Moment::from_ticks).map(text))
    }),
    Function::new("YEAR", 1, 1, |_, it| optional(field(it, Unit::Year))),
];

fn optional(value: Option<Value>) -> Result<Value> {
    Ok(value.unwrap_or_default())
}

fn moment(value: &Value) -> Option<Moment> {
    Moment::parse(value.as_str()?)
}

fn unit(value: &Value) -> Option<Unit> {
    Unit::named(value.as_str()?)
}

fn integer(integer: i64) -> Value {
    Value::Number(Number::from(integer))
}

fn text(moment: Moment) -> Value {
    Value::string(moment.to_string())
}

fn ticks(moment: Moment) -> Value {
    integer(moment.ticks())
}

fn now(context: &Context) -> Option<Moment> {
    let millis = i64::try_from(context.now.as_millis()).ok()?;
    Moment::from_ticks(millis.checked_mul(TICKS_PER_MILLISECOND)?)
}

fn millis(context: &Context) -> Option<Value> {
    i64::try_from(context.now.as_millis()).ok().map(integer)
}

fn add(unit_name: &Value, count: &Value, start: &Value) -> Option<Value> {
    moment(start)?.plus(unit(unit_name)?, count.as_integer()?).map(text)
}

fn difference(unit_name: &Value, from: &Value, to: &Value) -> Option<Value> {
    moment(from)?.until(unit(unit_name)?, moment(to)?).map(integer)
}

fn part(unit_name: &Value, value: &Value) -> Option<Value> {
    Some(integer(moment(value)?.part(unit(unit_name)?)))
}

fn field(arguments: &[Value], unit: Unit) -> Option<Value> {
    Some(integer(moment(arguments.first()?)?.part(unit)))
}

fn from_parts(arguments: &[Value]) -> Option<Value> {
    let field = |place: usize| arguments.get(place).map_or(Some(0), Value::as_integer);
    let fields = Fields {
        year: field(0)?,
        month: field(1)?,
        day: field(2)?,
        hour: field(3)?,
        minute: field(4)?,
        second: field(5)?,
        fraction: field(6)?,
    };
    Moment::from_fields(fields).map(text)
}

/// The last moment, not later than the given one, that is a multiple of some units from an origin.
fn bin(arguments: &[Value]) -> Option<Value> {
    let value = moment(arguments.first()?)?;
    let unit = unit(arguments.get(1)?)?;
    let size = arguments.get(2).map_or(Some(1), Value::as_integer).filter(|it| 0 < *it)?;
    let origin = match arguments.get(3) {
        Some(origin) => moment(origin)?,
        None => Moment::from_ticks(0)?,
    };
    if let Some(ticks) = unit.ticks() {
        let width = ticks.checked_mul(size)?;
        let distance = value.ticks() - origin.ticks();
        return Moment::from_ticks(value.ticks() - distance.rem_euclid(width)).map(text);
    }
    if unit == Unit::Nanosecond {
        let nanos = |it: Moment| i128::from(it.ticks()) * i128::from(NANOSECONDS_PER_TICK);
        let distance = nanos(value) - nanos(origin);
        let found = nanos(value) - distance.rem_euclid(size.into());
        let ticks = found.div_euclid(NANOSECONDS_PER_TICK.into());
        return Moment::from_ticks(i64::try_from(ticks).ok()?).map(text);
    }
    let mut count = origin.until(unit, value)?.div_euclid(size) * size;
    let mut found = origin.plus(unit, count)?;
    if value < found {
        count -= size;
        found = origin.plus(unit, count)?;
    }
    Some(text(found))
}
