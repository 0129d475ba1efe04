//! Places on the earth as GeoJSON: points, lines and polygons, on a sphere.
//!
//! Distances and areas are of a sphere with the earth's mean radius, so they differ from the service's ellipsoid by up to half a
//! per cent. Whether a point is in a polygon is decided on the flat longitude-latitude plane.

use super::Function as F;
use super::{Function, look_through};
use crate::query::evaluate::{Env, Stop};
use crate::query::value::{Elements, Text, Val};
use std::rc::Rc;

const EARTH_RADIUS_METRES: f64 = 6_371_008.8;

/// What reading a shape takes, in bytes for each of its text, and what holding a place against a line does: some sines among them.
const SHAPE_WORK: usize = 16;
const PAIR_WORK: usize = 512;

type Point = (f64, f64);
type Ring = Vec<Point>;

#[derive(Debug, Clone, PartialEq)]
enum Shape {
    Points(Vec<Point>),
    Lines(Vec<Vec<Point>>),
    /// Each an outer ring and holes.
    Polygons(Vec<Vec<Ring>>),
}

pub fn call<'a>(function: Function, arguments: &[Val<'a>], env: &Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    let before = env.meter.row_bytes();
    if matches!(
        function,
        F::StIsValid | F::StIsValidDetailed | F::StArea | F::StDistance | F::StWithin | F::StIntersects
    ) {
        look_through(arguments, SHAPE_WORK, env)?;
        env.charge(arguments.iter().map(Val::tree_bytes).sum())?;
    }
    let shapes = || Some((shape(&arguments[0]).ok()?, shape(arguments.get(1)?).ok()?));
    let result = match function {
        F::StIsValid => Some(Val::Bool(shape(&arguments[0]).is_ok())),
        F::StIsValidDetailed => Some(detailed(&arguments[0])),
        F::StArea => shape(&arguments[0]).ok().and_then(|shape| area(&shape)).map(Val::number),
        F::StDistance | F::StWithin | F::StIntersects => match shapes() {
            Some((left, right)) => {
                // Each place of one is held against each line of the other.
                env.look(PAIR_WORK * count(&left).saturating_mul(count(&right)))?;
                Some(match function {
                    F::StDistance => Val::number(distance(&left, &right)),
                    F::StWithin => Val::Bool(is_within(&left, &right)),
                    _ => Val::Bool(intersects(&left, &right)),
                })
            }
            None => None,
        },
        _ => return Ok(None),
    };
    env.meter.free_to(before);
    Ok(Some(result.unwrap_or(Val::Undefined)))
}

fn detailed<'a>(value: &Val<'a>) -> Val<'a> {
    let mut members = vec![(Text::Borrowed("valid"), Val::Bool(true))];
    if let Err(reason) = shape(value) {
        members =
            vec![(Text::Borrowed("valid"), Val::Bool(false)), (Text::Borrowed("reason"), Val::text(reason))];
    }
    Val::Object(Rc::new(members))
}

fn each<'a>(value: &Val<'a>) -> Result<Elements<'a>, &'static str> {
    value.elements().ok_or("Coordinates must be an array.")
}

fn shape(value: &Val<'_>) -> Result<Shape, &'static str> {
    let kind = value.member("type");
    let coordinates = value.member("coordinates");
    Ok(match kind.as_text() {
        Some("Point") => Shape::Points(vec![point(&coordinates)?]),
        Some("MultiPoint") => {
            Shape::Points(each(&coordinates)?.map(|place| point(&place)).collect::<Result<_, _>>()?)
        }
        Some("LineString") => Shape::Lines(vec![line(&coordinates)?]),
        Some("MultiLineString") => {
            Shape::Lines(each(&coordinates)?.map(|places| line(&places)).collect::<Result<_, _>>()?)
        }
        Some("Polygon") => Shape::Polygons(vec![polygon(&coordinates)?]),
        Some("MultiPolygon") => {
            Shape::Polygons(each(&coordinates)?.map(|rings| polygon(&rings)).collect::<Result<_, _>>()?)
        }
        _ => {
            return Err(
                "The type must be Point, LineString, Polygon, MultiPoint, MultiLineString or MultiPolygon.",
            );
        }
    })
}

fn point(value: &Val<'_>) -> Result<Point, &'static str> {
    let (Some(longitude), Some(latitude)) = (value.element(0).as_number(), value.element(1).as_number())
    else {
        return Err("A position must be an array of at least two numbers.");
    };
    if !(-180.0..=180.0).contains(&longitude) {
        return Err("Longitude values must be between -180 and 180 degrees.");
    }
    if !(-90.0..=90.0).contains(&latitude) {
        return Err("Latitude values must be between -90 and 90 degrees.");
    }
    Ok((longitude, latitude))
}

fn line(value: &Val<'_>) -> Result<Vec<Point>, &'static str> {
    let places = each(value)?;
    let places: Vec<Point> = places.map(|place| point(&place)).collect::<Result<_, _>>()?;
    if places.len() < 2 { Err("A line must have at least two positions.") } else { Ok(places) }
}

fn polygon(value: &Val<'_>) -> Result<Vec<Ring>, &'static str> {
    let rings = each(value)?;
    let rings: Vec<Ring> = rings.map(|places| line(&places)).collect::<Result<_, _>>()?;
    if rings.is_empty() {
        return Err("A polygon must have at least one ring.");
    }
    for ring in &rings {
        if ring.len() < 4 {
            return Err("A polygon ring must have at least four positions.");
        }
        if ring.first() != ring.last() {
            return Err(
                "The Polygon input is not valid because the start and end points of the ring number 1 are not the same. Each ring of a polygon must have the same start and end points.",
            );
        }
    }
    Ok(rings)
}

/// Great-circle distance in metres.
fn metres(left: Point, right: Point) -> f64 {
    let (left_lat, right_lat) = (left.1.to_radians(), right.1.to_radians());
    let half_lat = (right_lat - left_lat) / 2.0;
    let half_lon = (right.0 - left.0).to_radians() / 2.0;
    let chord = half_lat.sin().powi(2) + left_lat.cos() * right_lat.cos() * half_lon.sin().powi(2);
    2.0 * EARTH_RADIUS_METRES * chord.sqrt().min(1.0).asin()
}

/// From a point to the nearest point of a segment, on a plane laid at the point.
fn metres_to_segment(at: Point, from: Point, to: Point) -> f64 {
    let scale = at.1.to_radians().cos();
    let flat = |place: Point| ((place.0 - at.0) * scale, place.1 - at.1);
    let ((from_x, from_y), (to_x, to_y)) = (flat(from), flat(to));
    let (along_x, along_y) = (to_x - from_x, to_y - from_y);
    let length = along_x * along_x + along_y * along_y;
    let share =
        if length == 0.0 { 0.0 } else { (-(from_x * along_x + from_y * along_y) / length).clamp(0.0, 1.0) };
    let nearest = (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share);
    metres(at, nearest)
}

fn count(shape: &Shape) -> usize {
    match shape {
        Shape::Points(points) => points.len(),
        Shape::Lines(lines) => lines.iter().map(Vec::len).sum(),
        Shape::Polygons(polygons) => polygons.iter().flatten().map(Vec::len).sum(),
    }
}

fn points(shape: &Shape) -> Vec<Point> {
    match shape {
        Shape::Points(points) => points.clone(),
        Shape::Lines(lines) => lines.concat(),
        Shape::Polygons(polygons) => polygons.iter().flatten().flatten().copied().collect(),
    }
}

fn segments(shape: &Shape) -> Vec<(Point, Point)> {
    let of = |places: &Vec<Point>| places.windows(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>();
    match shape {
        Shape::Points(points) => points.iter().map(|point| (*point, *point)).collect(),
        Shape::Lines(lines) => lines.iter().flat_map(of).collect(),
        Shape::Polygons(polygons) => polygons.iter().flatten().flat_map(of).collect(),
    }
}

fn distance(left: &Shape, right: &Shape) -> f64 {
    if let (Shape::Points(left), Shape::Points(right)) = (left, right) {
        let pairs = left.iter().flat_map(|left| right.iter().map(|right| metres(*left, *right)));
        return pairs.fold(f64::INFINITY, f64::min);
    }
    if intersects(left, right) {
        return 0.0;
    }
    let nearest = |places: Vec<Point>, segments: &[(Point, Point)]| {
        let pairs = places
            .into_iter()
            .flat_map(|at| segments.iter().map(move |(from, to)| metres_to_segment(at, *from, *to)));
        pairs.fold(f64::INFINITY, f64::min)
    };
    nearest(points(left), &segments(right)).min(nearest(points(right), &segments(left)))
}

fn is_in_ring(at: Point, ring: &[Point]) -> bool {
    let crossings = ring.windows(2).filter(|pair| {
        let (from, to) = (pair[0], pair[1]);
        (from.1 > at.1) != (to.1 > at.1)
            && at.0 < (to.0 - from.0) * (at.1 - from.1) / (to.1 - from.1) + from.0
    });
    crossings.count() % 2 == 1
}

fn is_in_polygons(at: Point, polygons: &[Vec<Ring>]) -> bool {
    polygons.iter().any(|rings| {
        let mut rings = rings.iter();
        rings.next().is_some_and(|outer| is_in_ring(at, outer)) && !rings.any(|hole| is_in_ring(at, hole))
    })
}

fn is_within(inner: &Shape, outer: &Shape) -> bool {
    match outer {
        Shape::Polygons(polygons) => {
            points(inner).into_iter().all(|at| is_in_polygons(at, polygons))
                && (matches!(inner, Shape::Points(_)) || !crosses(inner, outer))
        }
        _ => inner == outer,
    }
}

fn intersects(left: &Shape, right: &Shape) -> bool {
    let is_inside = |inner: &Shape, outer: &Shape| match outer {
        Shape::Polygons(polygons) => points(inner).into_iter().any(|at| is_in_polygons(at, polygons)),
        _ => false,
    };
    is_inside(left, right) || is_inside(right, left) || crosses(left, right)
}

fn crosses(left: &Shape, right: &Shape) -> bool {
    let right = segments(right);
    segments(left).iter().any(|left| right.iter().any(|right| meet(*left, *right)))
}

/// Whether two segments have a point in common.
fn meet((a, b): (Point, Point), (c, d): (Point, Point)) -> bool {
    let turn = |from: Point, to: Point, at: Point| {
        (to.0 - from.0) * (at.1 - from.1) - (to.1 - from.1) * (at.0 - from.0)
    };
    let is_between = |from: Point, to: Point, at: Point| {
        (from.0.min(to.0)..=from.0.max(to.0)).contains(&at.0)
            && (from.1.min(to.1)..=from.1.max(to.1)).contains(&at.1)
    };
    let turns = [turn(c, d, a), turn(c, d, b), turn(a, b, c), turn(a, b, d)];
    if turns[0] * turns[1] < 0.0 && turns[2] * turns[3] < 0.0 {
        return true;
    }
    turns[0] == 0.0 && is_between(c, d, a)
        || turns[1] == 0.0 && is_between(c, d, b)
        || turns[2] == 0.0 && is_between(a, b, c)
        || turns[3] == 0.0 && is_between(a, b, d)
}

/// Square metres of polygons, 0 of points and lines.
fn area(shape: &Shape) -> Option<f64> {
    let Shape::Polygons(polygons) = shape else { return Some(0.0) };
    let ring_area = |ring: &Ring| {
        let excess: f64 = ring
            .windows(2)
            .map(|pair| {
                let (from, to) = (pair[0], pair[1]);
                (to.0 - from.0).to_radians() * (2.0 + from.1.to_radians().sin() + to.1.to_radians().sin())
            })
            .sum();
        (excess * EARTH_RADIUS_METRES * EARTH_RADIUS_METRES / 2.0).abs()
    };
    Some(
        polygons
            .iter()
            .map(|rings| {
                rings
                    .iter()
                    .map(ring_area)
                    .enumerate()
                    .map(|(at, area)| if at == 0 { area } else { -area })
                    .sum::<f64>()
            })
            .sum(),
    )
}
