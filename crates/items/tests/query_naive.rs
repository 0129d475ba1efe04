//! Queries that nobody has thought of, over items that nobody has thought of: the evaluator, with and without indexes and in pages of
//! any size, finds what a second and naive one finds (`naive`).

#![allow(clippy::unwrap_used, reason = "a test")]

mod naive;
mod world;

use naive::{Expr, Step, Val, aggregate, compare, plain};
use otobus_items::*;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use world::*;

/// Queries over one set of items.
const QUERIES: usize = 40;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % count as u64) as usize
    }

    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    fn scalar(&mut self) -> Json {
        self.pick(&[
            json!(null),
            json!(true),
            json!(false),
            json!(-2),
            json!(0),
            json!(1),
            json!(2),
            json!(0.5),
            json!(1.0),
            json!(""),
            json!("a"),
            json!("ab"),
            json!("b"),
            json!("B"),
            json!("é"),
        ])
    }

    fn any(&mut self) -> Json {
        match self.below(6) {
            0 => Json::Array((0..self.below(3)).map(|_| self.scalar()).collect()),
            1 => json!({"x": self.scalar()}),
            _ => self.scalar(),
        }
    }

    fn items(&mut self) -> Vec<Json> {
        let item = |nth: usize| {
            let mut members = serde_json::Map::new();
            members.insert("id".into(), json!(format!("i{nth}")));
            members.insert("pk".into(), json!("p"));
            for name in ["a", "b"] {
                if !self.once_in(4) {
                    members.insert(name.into(), self.any());
                }
            }
            if !self.once_in(5) {
                members.insert("n".into(), json!(self.below(5)));
            }
            if !self.once_in(5) {
                members.insert("list".into(), Json::Array((0..self.below(4)).map(|_| self.any()).collect()));
            }
            if !self.once_in(3) {
                members.insert("o".into(), json!({"x": self.any(), "y": {"z": self.scalar()}}));
            }
            Json::Object(members)
        };
        (0..9).map(item).collect()
    }

    fn path(&mut self, root: &'static str) -> Expr {
        use Step::{Index, Member};
        let steps = match root {
            "c" => match self.below(9) {
                0 | 1 => vec![Member("a")],
                2 | 3 => vec![Member("b")],
                4 => vec![Member("n")],
                5 => vec![Member("list"), Index(self.below(2))],
                6 => vec![Member("o"), Member("x")],
                7 => vec![Member("o"), Member("y"), Member("z")],
                _ => vec![Member("missing")],
            },
            _ if self.once_in(2) => vec![],
            _ => vec![Member("x")],
        };
        Expr::Path(root, steps)
    }

    fn expression(&mut self, roots: &[&'static str], depth: usize) -> Expr {
        if depth == 0 || self.once_in(5) {
            let root = self.pick(roots);
            return if self.once_in(3) { Expr::Literal(self.any()) } else { self.path(root) };
        }
        let inner = |random: &mut Random| Box::new(random.expression(roots, depth - 1));
        match self.below(10) {
            0 | 1 => {
                let operator = self.pick(&["+", "-", "*", "/", "%", "||", "??"]);
                Expr::Binary(operator, inner(self), inner(self))
            }
            2 | 3 => {
                let name = self.pick(&["LENGTH", "UPPER", "REVERSE", "ABS", "ARRAY_LENGTH"]);
                Expr::Call(name, vec![*inner(self)])
            }
            4 | 5 => {
                let name = self.pick(&["CONCAT", "INDEX_OF", "ARRAY_CONCAT"]);
                Expr::Call(name, vec![*inner(self), *inner(self)])
            }
            6 => Expr::Path("c", vec![Step::Member("list")]),
            _ => self.condition(roots, depth - 1),
        }
    }

    fn condition(&mut self, roots: &[&'static str], depth: usize) -> Expr {
        let value = |random: &mut Random| Box::new(random.expression(roots, depth.min(1)));
        match self.below(12) {
            0 | 1 if depth > 0 => {
                let operator = self.pick(&["AND", "OR", "AND"]);
                let (left, right) = (self.condition(roots, depth - 1), self.condition(roots, depth - 1));
                Expr::Binary(operator, Box::new(left), Box::new(right))
            }
            2 if depth > 0 => Expr::Not(Box::new(self.condition(roots, depth - 1))),
            3 => {
                let values = (0..1 + self.below(3)).map(|_| self.any()).collect();
                Expr::In(value(self), values)
            }
            4 => Expr::Between(value(self), value(self), value(self)),
            5 => Expr::Like(value(self), self.pick(&["a%", "%b", "_", "a_", "%", ""])),
            6 => {
                let kinds =
                    ["IS_DEFINED", "IS_NULL", "IS_BOOL", "IS_NUMBER", "IS_STRING", "IS_ARRAY", "IS_OBJECT"];
                Expr::Call(self.pick(&kinds), vec![*value(self)])
            }
            7 => {
                let name = self.pick(&["STARTSWITH", "ENDSWITH", "CONTAINS"]);
                Expr::Call(name, vec![*value(self), *value(self)])
            }
            8 => Expr::Call("ARRAY_CONTAINS", vec![*value(self), Expr::Literal(self.any())]),
            // What an index can help with.
            9 | 10 => {
                let operator = self.pick(&["=", "<", "<=", ">", ">="]);
                let root = self.pick(roots);
                Expr::Binary(operator, Box::new(self.path(root)), Box::new(Expr::Literal(self.any())))
            }
            _ => {
                let operator = self.pick(&["=", "!=", "<", "<=", ">", ">="]);
                Expr::Binary(operator, value(self), value(self))
            }
        }
    }
}

/// What a query must give.
enum Expected {
    /// In any order.
    Rows(Vec<Json>),
    /// In this order.
    Sorted(Vec<Json>),
    /// So many of these.
    Some(usize, Vec<Json>),
}

struct Case {
    text: String,
    expected: Expected,
}

fn scope(item: &Json) -> naive::Scope {
    BTreeMap::from([("c", item.clone())])
}

/// An object without the members that are undefined.
fn object(members: Vec<(&str, Val)>) -> Json {
    let defined = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Json::Object(defined.collect())
}

fn case(random: &mut Random, items: &[Json]) -> Case {
    let condition = if random.once_in(4) { None } else { Some(random.condition(&["c"], 2)) };
    let is_wanted = |item: &&Json| condition.as_ref().is_none_or(|one| one.is_true(&scope(item)));
    let kept: Vec<&Json> = items.iter().filter(is_wanted).collect();
    let filter = condition.as_ref().map_or(String::new(), |one| format!(" WHERE {}", one.text()));
    match random.below(6) {
        0 => joined(random, items),
        1 => distinct(random, &kept, &filter),
        2 => grouped(random, &kept, &filter),
        3 => aggregated(random, &kept, &filter),
        4 => sorted(random, &kept, &filter),
        _ => projected(random, &kept, &filter),
    }
}

fn projected(random: &mut Random, kept: &[&Json], filter: &str) -> Case {
    let value = random.expression(&["c"], 2);
    let row = |item: &&Json| {
        let scope = scope(item);
        object(vec![("id", scope["c"].get("id").cloned()), ("v", value.value(&scope))])
    };
    let rows: Vec<Json> = kept.iter().map(row).collect();
    let selected = format!("VALUE {{\"id\": c.id, \"v\": {}}} FROM c{filter}", value.text());
    if random.once_in(3) {
        let top = random.below(6);
        let count = top.min(rows.len());
        return Case { text: format!("SELECT TOP {top} {selected}"), expected: Expected::Some(count, rows) };
    }
    Case { text: format!("SELECT {selected}"), expected: Expected::Rows(rows) }
}

fn sorted(random: &mut Random, kept: &[&Json], filter: &str) -> Case {
    let path = random.pick(&["n", "a", "b", "missing"]);
    let key = Expr::Path("c", vec![Step::Member(path)]);
    let is_descending = random.once_in(2);
    let key_of = |item: &&Json| key.value(&scope(item));
    // Arrays and objects have an order of our own.
    let mut kept: Vec<&Json> =
        kept.iter().filter(|item| key_of(item).is_none_or(|key| naive::rank(&key) <= 4)).copied().collect();
    // The sort is stable, and items come in the order of their ids.
    kept.sort_by(|left, right| {
        let order = compare(&key_of(left), &key_of(right));
        if is_descending { order.reverse() } else { order }
    });
    let rows: Vec<Json> = kept.iter().map(|item| item["id"].clone()).collect();
    let (skip, most) = (random.below(4), random.below(6));
    let direction = if is_descending { "DESC" } else { "ASC" };
    let primitive = format!("(IS_PRIMITIVE({0}) OR NOT IS_DEFINED({0}))", key.text());
    let filter = match filter.strip_prefix(" WHERE ") {
        Some(condition) => format!(" WHERE {primitive} AND {condition}"),
        None => format!(" WHERE {primitive}"),
    };
    let (slice, rows) = match random.once_in(2) {
        true => (format!(" OFFSET {skip} LIMIT {most}"), rows.into_iter().skip(skip).take(most).collect()),
        false => (String::new(), rows),
    };
    let text = format!("SELECT VALUE c.id FROM c{filter} ORDER BY {} {direction}, c.id{slice}", key.text());
    Case { text, expected: Expected::Sorted(rows) }
}

fn distinct(random: &mut Random, kept: &[&Json], filter: &str) -> Case {
    let value = random.expression(&["c"], 1);
    let mut rows: Vec<Json> = Vec::new();
    for row in kept.iter().filter_map(|item| value.value(&scope(item))) {
        if !rows.iter().any(|other| plain(other) == plain(&row)) {
            rows.push(row);
        }
    }
    Case {
        text: format!("SELECT DISTINCT VALUE {} FROM c{filter}", value.text()),
        expected: Expected::Rows(rows),
    }
}

fn grouped(random: &mut Random, kept: &[&Json], filter: &str) -> Case {
    let (key, value) = (random.path("c"), random.path("c"));
    let mut groups: Vec<(Val, Vec<Val>)> = Vec::new();
    for item in kept {
        let (key, value) = (key.value(&scope(item)), value.value(&scope(item)));
        let same = |other: &Val| other.as_ref().map(plain) == key.as_ref().map(plain);
        match groups.iter_mut().find(|(other, _)| same(other)) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    let names = ["COUNT", "SUM", "AVG", "MIN", "MAX"];
    let row = |(key, values): (Val, Vec<Val>)| {
        let mut members = vec![("g", key)];
        members.extend(names.map(|name| (name, aggregate(name, &values))));
        object(members)
    };
    let rows = groups.into_iter().map(row).collect();
    let columns = names.map(|name| format!("{name}({}) AS {name}_", value.text())).join(", ");
    let rows = renamed(rows);
    let text = format!("SELECT {} AS g, {columns} FROM c{filter} GROUP BY {}", key.text(), key.text());
    Case { text, expected: Expected::Rows(rows) }
}

/// Aggregates are no names of columns.
fn renamed(rows: Vec<Json>) -> Vec<Json> {
    let rename = |(name, value): (&String, &Json)| {
        let name = if name == "g" { name.clone() } else { format!("{name}_") };
        (name, value.clone())
    };
    rows.iter().map(|row| Json::Object(row.as_object().unwrap().iter().map(rename).collect())).collect()
}

fn aggregated(random: &mut Random, kept: &[&Json], filter: &str) -> Case {
    let name = random.pick(&["COUNT", "SUM", "AVG", "MIN", "MAX"]);
    let value = random.path("c");
    let values: Vec<Val> = kept.iter().map(|item| value.value(&scope(item))).collect();
    let rows = aggregate(name, &values).into_iter().collect();
    let text = format!("SELECT VALUE {name}({}) FROM c{filter}", value.text());
    Case { text, expected: Expected::Rows(rows) }
}

fn joined(random: &mut Random, items: &[Json]) -> Case {
    let condition = random.condition(&["c", "t"], 2);
    let mut rows = Vec::new();
    for item in items {
        for element in item.get("list").and_then(Json::as_array).into_iter().flatten() {
            let scope = BTreeMap::from([("c", item.clone()), ("t", element.clone())]);
            if condition.is_true(&scope) {
                rows.push(json!({"id": item["id"], "t": element}));
            }
        }
    }
    let text =
        format!("SELECT VALUE {{\"id\": c.id, \"t\": t}} FROM c JOIN t IN c.list WHERE {}", condition.text());
    Case { text, expected: Expected::Rows(rows) }
}

/// All rows of a query, page by page.
fn rows(world: &mut World, text: &str, max_items: i64) -> Result<Vec<Json>, Refusal> {
    let (mut rows, mut continuation) = (Vec::new(), None);
    loop {
        let query = Query {
            of: QueryScope::Items { container: path() },
            scope: Scope::All,
            text: text.to_owned(),
            parameters: Vec::new(),
            listing: Listing { max_items: Some(max_items), continuation },
            session: None,
        };
        let Answer::Page(page) = world.ask(Command::Query(query))? else { panic!("no page") };
        assert!(max_items < 0 || page.values.len() <= max_items as usize);
        rows.extend(page.values.iter().map(|row| plain(&serde_json::from_slice(row).unwrap())));
        continuation = page.continuation;
        if continuation.is_none() {
            return Ok(rows);
        }
    }
}

fn in_some_order(rows: &[Json]) -> Vec<String> {
    let mut texts: Vec<String> = rows.iter().map(|row| plain(row).to_string()).collect();
    texts.sort();
    texts
}

fn agrees(expected: &Expected, found: &[Json]) -> bool {
    match expected {
        Expected::Rows(rows) => in_some_order(rows) == in_some_order(found),
        Expected::Sorted(rows) => rows.iter().map(plain).eq(found.iter().cloned()),
        Expected::Some(count, rows) => {
            let all = in_some_order(rows);
            found.len() == *count && in_some_order(found).iter().all(|row| all.contains(row))
        }
    }
}

fn shown(expected: &Expected) -> String {
    match expected {
        Expected::Rows(rows) | Expected::Sorted(rows) => json!(rows).to_string(),
        Expected::Some(count, rows) => format!("{count} of {}", json!(rows)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // Q-4 to Q-16, P-52
    #[test]
    fn queries_give_what_a_naive_evaluator_gives(seed in any::<u64>()) {
        let mut random = Random(seed);
        let items = random.items();
        let policies = ["", r#""indexingPolicy":{"indexingMode":"none","automatic":false}"#];
        let mut worlds = policies.map(World::with);
        for world in &mut worlds {
            for item in &items {
                let write = ItemWrite { container: path(), body: item.to_string().into(), ..ItemWrite::default() };
                world.ask(Command::CreateItem(write)).unwrap();
            }
        }
        for _ in 0..QUERIES {
            let Case { text, expected } = case(&mut random, &items);
            for (world, indexed) in worlds.iter_mut().zip([true, false]) {
                for page in [-1, 1, 2] {
                    let found = rows(world, &text, page);
                    let found = found.unwrap_or_else(|refusal| panic!("{text} is refused: {refusal}"));
                    prop_assert!(
                        agrees(&expected, &found),
                        "{text}\nindexed: {indexed}, pages of {page}\nfinds {}\nnot   {}\nitems {}",
                        json!(found), shown(&expected), json!(items)
                    );
                }
            }
        }
    }
}
