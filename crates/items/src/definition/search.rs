//! Policies for vectors, full text and shapes. There are no such indexes here (CX-13.8, CX-13.9): the policies are kept and told
//! again, and what the service would refuse is refused.

use crate::json::{self, Object, Value};
use crate::{Refusal, limits};

/// Languages of full text that the service has.
const LANGUAGES: [&str; 7] = ["en-US", "de-DE", "es-ES", "fr-FR", "it-IT", "pt-BR", "pt-PT"];
/// The same by the numbers that Windows has for them, as the JavaScript SDK's tests write one.
const LANGUAGE_NUMBERS: [&str; 7] = ["1033", "1031", "3082", "1036", "1040", "1046", "2070"];

/// Checks a definition as a client sends it. `before` is the one that it replaces.
pub fn check(sent: &Object, before: Option<&Object>) -> Result<(), Refusal> {
    let indexing = sent.get("indexingPolicy");
    let embeddings = list(sent.get("vectorEmbeddingPolicy"), "vectorEmbeddings")?;
    for embedding in embeddings {
        check_embedding(embedding)?;
    }
    for index in list(indexing, "vectorIndexes")? {
        check_vector_index(index, embeddings)?;
    }
    if let Some(before) = before {
        check_unchanged(sent, before)?;
    }
    check_full_text(sent.get("fullTextPolicy"), indexing)?;
    let geospatial = sent.get("geospatialConfig").or_else(|| before?.get("geospatialConfig"));
    check_shapes(geospatial, indexing)
}

/// A list in a policy; none where the policy or the list is left out.
fn list<'a>(policy: Option<&'a Value>, name: &str) -> Result<&'a [Value], Refusal> {
    match policy.and_then(|policy| policy.get(name)) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(entries)) => Ok(entries),
        Some(_) => Err(Refusal::bad(format!("One of the specified inputs is invalid: {name} is no array."))),
    }
}

fn text<'a>(entry: &'a Value, name: &str) -> &'a str {
    entry.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn integer(entry: &Value, name: &str) -> Option<i64> {
    entry.get(name)?.as_number()?.as_i64()
}

fn is_one_of(text: &str, known: &[&str]) -> bool {
    known.iter().any(|known| known.eq_ignore_ascii_case(text))
}

fn check_embedding(embedding: &Value) -> Result<(), Refusal> {
    let refused = |what: String| Err(Refusal::bad(format!("The Vector Embedding Policy has {what}.")));
    let (path, kind, distance) =
        (text(embedding, "path"), text(embedding, "dataType"), text(embedding, "distanceFunction"));
    if !path.starts_with('/') {
        return refused(format!("an invalid Path:{path}"));
    }
    if !is_one_of(kind, &["float32", "float16", "int8", "uint8"]) {
        return refused(format!("an invalid DataType:{kind}"));
    }
    if !is_one_of(distance, &["cosine", "dotproduct", "euclidean"]) {
        return refused(format!("an invalid DistanceFunction:{distance}"));
    }
    match integer(embedding, "dimensions") {
        Some(dimensions) if dimensions > limits::VECTOR_DIMENSIONS => refused(format!(
            "Dimensions:{dimensions} which is more than the maximum supported value {}",
            limits::VECTOR_DIMENSIONS
        )),
        Some(1..) => Ok(()),
        Some(dimensions) => {
            refused(format!("Dimensions:{dimensions} and it is expected to be a positive integer"))
        }
        None => refused("no Dimensions".to_owned()),
    }
}

fn check_vector_index(index: &Value, embeddings: &[Value]) -> Result<(), Refusal> {
    let refused = |what: String| Err(Refusal::bad(format!("The Vector Indexing Policy{what}.")));
    let (path, kind) = (text(index, "path"), text(index, "type"));
    let Some(embedding) = embeddings.iter().find(|embedding| text(embedding, "path") == path) else {
        return refused(format!("'s path::{path} not matching in Embedding's path"));
    };
    if !is_one_of(kind, &["flat", "quantizedFlat", "diskANN"]) {
        return refused(format!("'s Index Type::{kind} is invalid"));
    }
    let most = integer(embedding, "dimensions").unwrap_or(0).min(limits::QUANTIZED_BYTES);
    for (member, name, least, most) in [
        ("quantizationByteSize", "QuantizationByteSize", 1, most),
        ("indexingSearchListSize", "IndexingSearchListSize", 25, 500),
    ] {
        let Some(value) = index.get(member) else { continue };
        if !value.as_number().and_then(|number| number.as_i64()).is_some_and(|n| (least..=most).contains(&n))
        {
            let value = String::from_utf8_lossy(&value.to_text()).into_owned();
            return refused(format!(
                " parameter {name} value :: {value} is out of range. The allowed range is between {least} and {most}"
            ));
        }
    }
    let shards = list(Some(index), "vectorIndexShardKey")?;
    if shards.len() > 1 {
        let count = shards.len();
        return Err(Refusal::bad(format!(
            "The number of shard paths defined in the Vector Indexing Policy: {count} exceeds the maximum: 1."
        )));
    }
    match shards.iter().find(|path| !path.as_str().is_some_and(|path| path.starts_with('/'))) {
        Some(path) => refused(format!(" has an invalid Shard Path: {}", path.as_str().unwrap_or_default())),
        None => Ok(()),
    }
}

/// What there is for a path of vectors stays as it is; paths may come and go.
fn check_unchanged(sent: &Object, before: &Object) -> Result<(), Refusal> {
    for (policy, name, shown) in [
        ("vectorEmbeddingPolicy", "vectorEmbeddings", "embedding policy"),
        ("indexingPolicy", "vectorIndexes", "vector indexing policy"),
    ] {
        let earlier = list(before.get(policy), name)?;
        for entry in list(sent.get(policy), name)? {
            let was = earlier.iter().find(|was| text(was, "path") == text(entry, "path"));
            if was.is_some_and(|was| !json::equal(was, entry)) {
                return Err(Refusal::bad(format!(
                    "Paths in existing {shown} cannot be modified in Collection Replace."
                )));
            }
        }
    }
    Ok(())
}

fn is_language(name: &str) -> bool {
    LANGUAGES.contains(&name) || LANGUAGE_NUMBERS.contains(&name)
}

fn check_full_text(policy: Option<&Value>, indexing: Option<&Value>) -> Result<(), Refusal> {
    let refused =
        |what: String| Err(Refusal::bad(format!("The Full Text Policy contains an invalid {what}.")));
    for entry in policy.into_iter().chain(list(policy, "fullTextPaths")?) {
        for name in ["defaultLanguage", "language"] {
            match entry.get(name) {
                None | Some(Value::Null) => {}
                Some(Value::String(language)) if is_language(language) => {}
                Some(other) => {
                    let other = String::from_utf8_lossy(&other.to_text()).into_owned();
                    return refused(format!("{name}: {other}; there are {}", LANGUAGES.join(", ")));
                }
            }
        }
    }
    for entry in list(policy, "fullTextPaths")? {
        let path = text(entry, "path");
        if !path.starts_with('/') {
            return refused(format!("Path: {path}"));
        }
    }
    match list(indexing, "fullTextIndexes")?.iter().find(|index| !text(index, "path").starts_with('/')) {
        Some(index) => {
            let path = text(index, "path");
            Err(Refusal::bad(format!("The Full Text Indexing Policy contains an invalid Path: {path}.")))
        }
        None => Ok(()),
    }
}

/// A plane has bounds, the earth has none.
fn check_shapes(geospatial: Option<&Value>, indexing: Option<&Value>) -> Result<(), Refusal> {
    let is_plane = geospatial.is_some_and(|config| text(config, "type").eq_ignore_ascii_case("Geometry"));
    for index in list(indexing, "spatialIndexes")? {
        let has_bounds = index.get("boundingBox").is_some_and(|bounds| *bounds != Value::Null);
        let path = text(index, "path");
        if is_plane && !has_bounds {
            return Err(Refusal::bad(format!(
                "The spatial index of '{path}' needs a boundingBox: the container's type is Geometry."
            )));
        }
        if !is_plane && has_bounds {
            return Err(Refusal::bad(format!(
                "The spatial index of '{path}' cannot have a boundingBox: the container's type is Geography."
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Object {
        match json::parse(text.as_bytes()) {
            Ok(Value::Object(object)) => object,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn checked(definition: &str) -> String {
        check(&object(definition), None).err().map(|refusal| refusal.to_string()).unwrap_or_default()
    }

    fn vectors(embedding: &str, indexes: &str) -> String {
        format!(
            r#"{{"vectorEmbeddingPolicy":{{"vectorEmbeddings":[{{"path":"/v",{embedding}}}]}},"indexingPolicy":{{"vectorIndexes":[{indexes}]}}}}"#
        )
    }

    const USUAL: &str = r#""dataType":"float32","dimensions":256,"distanceFunction":"cosine""#;

    // CX-13.9
    #[test]
    fn a_policy_of_vectors_is_held_against_what_the_service_takes() {
        for index in [
            "",
            r#"{"path":"/v","type":"flat"}"#,
            r#"{"path":"/v","type":"quantizedFlat","quantizationByteSize":256}"#,
            r#"{"path":"/v","type":"diskANN","indexingSearchListSize":25,"vectorIndexShardKey":["/country/city"]}"#,
        ] {
            assert_eq!(checked(&vectors(USUAL, index)), "", "{index}");
        }
        for (index, words) in [
            (r#"{"path":"/w","type":"flat"}"#, "path::/w not matching in Embedding's path"),
            (r#"{"path":"/v","type":"notFlat"}"#, "Index Type::notFlat is invalid"),
            (
                r#"{"path":"/v","type":"flat","quantizationByteSize":0}"#,
                "QuantizationByteSize value :: 0 is out of range. The allowed range is between 1 and 256.",
            ),
            (r#"{"path":"/v","type":"flat","quantizationByteSize":257}"#, "value :: 257 is out of range"),
            (r#"{"path":"/v","type":"flat","indexingSearchListSize":24}"#, "range is between 25 and 500."),
            (r#"{"path":"/v","type":"flat","indexingSearchListSize":501}"#, "value :: 501 is out of range"),
            (r#"{"path":"/v","type":"flat","vectorIndexShardKey":["a"]}"#, "an invalid Shard Path: a."),
            (
                r#"{"path":"/v","type":"flat","vectorIndexShardKey":["/a","/b"]}"#,
                "Policy: 2 exceeds the maximum: 1.",
            ),
            (
                r#"{"path":"/v","type":"flat","vectorIndexShardKey":"/a"}"#,
                "One of the specified inputs is invalid",
            ),
        ] {
            let told = checked(&vectors(USUAL, index));
            assert!(told.contains(words), "{index}: {told}");
        }
        for (change, words) in [
            (USUAL.replace("float32", "float33"), "Vector Embedding Policy has an invalid DataType"),
            (
                USUAL.replace("256", "4097"),
                "Dimensions:4097 which is more than the maximum supported value 4096",
            ),
            (USUAL.replace("256", "0"), "Dimensions:0"),
            (USUAL.replace("256", "-1"), "The Vector Embedding Policy has Dimensions:-1"),
            (USUAL.replace("cosine", "byHand"), "an invalid DistanceFunction:byHand"),
        ] {
            let told = checked(&vectors(&change, ""));
            assert!(told.contains(words), "{change}: {told}");
        }
        assert_eq!(checked(&vectors(&USUAL.replace("256", "4096"), "")), "");
    }

    // CX-13.9
    #[test]
    fn what_a_path_of_vectors_has_is_not_changed_by_a_replace() {
        let flat = vectors(USUAL, r#"{"path":"/v","type":"flat"}"#);
        let replaced =
            |now: &str| check(&object(now), Some(&object(&flat))).map_err(|refusal| refusal.to_string());
        assert_eq!(replaced(&flat), Ok(()));
        assert_eq!(replaced("{}"), Ok(()));
        let quantized = replaced(&flat.replace("flat", "quantizedFlat")).unwrap_err();
        assert!(quantized.starts_with("Paths in existing vector indexing policy cannot be modified"));
        let wider = replaced(&flat.replace("256", "384")).unwrap_err();
        assert!(wider.starts_with("Paths in existing embedding policy cannot be modified"));
        let alone = r#"{"indexingPolicy":{"vectorIndexes":[{"path":"/v","type":"flat"}]}}"#;
        assert!(replaced(alone).unwrap_err().contains("not matching in Embedding's path"));
    }

    // CX-13.9
    #[test]
    fn a_policy_of_full_text_names_paths_and_known_languages() {
        let policy = |text: &str| checked(&format!(r#"{{"fullTextPolicy":{text}}}"#));
        assert_eq!(policy(r#"{"defaultLanguage":"en-US"}"#), "");
        assert_eq!(
            policy(r#"{"defaultLanguage":"pt-BR","fullTextPaths":[{"path":"/a","language":"de-DE"}]}"#),
            ""
        );
        assert_eq!(
            policy(r#"{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/a","language":"1033"}]}"#),
            ""
        );
        let path = policy(r#"{"defaultLanguage":"en-US","fullTextPaths":[{"path":"abstract"}]}"#);
        assert_eq!(path, "The Full Text Policy contains an invalid Path: abstract.");
        for unknown in [
            r#"{"defaultLanguage":"spa-SPA"}"#,
            r#"{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/a","language":"spa-SPA"}]}"#,
        ] {
            assert!(policy(unknown).contains("spa-SPA"), "{unknown}");
        }
        for (index, is_right) in
            [(r#"{"path":"/a"}"#, true), (r#"{"path":"a"}"#, false), (r#"{"not":"/a"}"#, false)]
        {
            let told = checked(&format!(r#"{{"indexingPolicy":{{"fullTextIndexes":[{index}]}}}}"#));
            assert_eq!(told.is_empty(), is_right, "{index}: {told}");
        }
    }

    // CX-13.8
    #[test]
    fn only_shapes_in_a_plane_have_bounds() {
        let container = |kind: &str, bounds: &str| {
            checked(&format!(
                r#"{{"geospatialConfig":{{"type":"{kind}"}},"indexingPolicy":{{"spatialIndexes":[{{"path":"/s/?"{bounds}}}]}}}}"#
            ))
        };
        let bounds = r#","boundingBox":{"xmin":0,"ymin":0,"xmax":1,"ymax":1}"#;
        assert_eq!(
            (container("Geometry", bounds), container("Geography", "")),
            (String::new(), String::new())
        );
        let bare = container("Geometry", "");
        assert!(bare.contains("boundingBox") && bare.contains("Geometry"), "{bare}");
        let bound = container("Geography", bounds);
        assert!(bound.contains("boundingBox") && bound.contains("Geography"), "{bound}");
    }
}
