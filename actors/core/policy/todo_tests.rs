//! Tests of `todo`: parsing and applying calls.

use super::*;

fn applied(calls: &[Value]) -> Result<Arc<TodoList>, BadArguments> {
    calls.iter().try_fold(Arc::default(), |list, arguments| parse_todo(arguments)?.apply(&list))
}

/// Applies calls one after the other and checks the list as text.
#[track_caller]
fn check(calls: &[Value], expect: &str) {
    let list = applied(calls).unwrap();
    assert_eq!(format_list(&list).unwrap_or_default(), expect);
    let told: Value = serde_json::from_str(&list_json(&list)).unwrap();
    assert_eq!(
        (told["summary"]["total"].as_u64(), &told["todos"]),
        (Some(list.0.len() as u64), &json!(list))
    );
}

/// Checks that the last call is rejected for this field.
#[track_caller]
fn check_refused(calls: &[Value], field: &str, part: &str) {
    let bad = applied(calls).unwrap_err();
    assert_eq!(bad.field.as_deref().unwrap_or_default(), field, "{bad:?}");
    assert!(bad.error.contains(part) && !bad.hint.is_empty(), "{bad:?}");
}

fn two() -> Value {
    json!({"todos": [{"id": "a", "content": "look", "status": "in_progress"}, {"id": "b", "content": "write"}]})
}

#[test]
fn a_list_is_replaced_or_merged() {
    check(&[json!({})], "");
    check(&[two()], "- [~] a: look\n- [ ] b: write");
    check(&[two(), json!({})], "- [~] a: look\n- [ ] b: write");
    check(&[two(), json!({"todos": null, "merge": true})], "- [~] a: look\n- [ ] b: write");
    check(&[two(), json!({"todos": [{"id": "c", "content": "end"}], "merge": false})], "- [ ] c: end");
    check(&[two(), json!({"todos": []})], "");
    let merge = json!({"merge": true, "todos": [
        {"id": "c", "content": "send\n it", "status": "cancelled"}, {"id": "a", "status": "completed"}, {"id": "b", "content": "w"},
    ]});
    check(&[two(), merge], "- [x] a: look\n- [ ] b: w\n- [-] c: send it");
}

#[test]
fn what_is_told_counts_by_status() {
    let told: Value = serde_json::from_str(&list_json(&applied(&[two()]).unwrap())).unwrap();
    let summary = json!({"total": 2, "pending": 1, "in_progress": 1, "completed": 0, "cancelled": 0});
    assert_eq!(told["summary"], summary);
    assert_eq!(told["todos"][1], json!({"id": "b", "content": "write", "status": "pending"}));
}

#[test]
fn what_is_not_acceptable_is_named() {
    let many =
        |from: usize, to: usize| (from..to).map(|n| json!({"id": n.to_string(), "content": "x"})).collect();
    let many = |from, to| Value::Array(many(from, to));
    let one = |item: Value| [json!({"todos": [{"id": "ok", "content": "x"}, item]})];
    check_refused(&[json!({"todo": []})], "", "unknown field `todo`");
    check_refused(&[json!({"todos": [{"id": 1, "content": "x"}]})], "todos[0]", "invalid type: integer `1`");
    check_refused(&one(json!({"content": "x"})), "todos[1]", "missing field `id`");
    check_refused(&one(json!({"id": "a", "content": "x", "status": "done"})), "todos[1]", "variant `done`");
    check_refused(&one(json!({"id": " ", "content": "x"})), "todos[1].id", "empty");
    check_refused(&one(json!({"id": "a".repeat(65), "content": "x"})), "todos[1].id", "65 characters");
    check_refused(&one(json!({"id": "ok", "content": "x"})), "todos[1].id", "`ok` is there twice");
    check_refused(&one(json!({"id": "a"})), "todos[1].content", "`a` is new");
    check_refused(&one(json!({"id": "a", "content": ""})), "todos[1].content", "empty");
    check_refused(&one(json!({"id": "a", "content": "ü".repeat(501)})), "todos[1].content", "501 characters");
    check_refused(&[json!({"todos": many(0, 65)})], "todos", "65 items are over the limit of 64");
    let merge = json!({"todos": many(60, 65), "merge": true});
    check_refused(&[json!({"todos": many(0, 60)}), merge], "todos", "65 items");
    check_refused(&[two(), json!({"todos": [{"id": "c"}], "merge": true})], "todos[0].content", "`c` is new");
    let long: Vec<_> = (0..64).map(|n| json!({"id": n.to_string(), "content": "漢".repeat(500)})).collect();
    check_refused(&[json!({"todos": long})], "todos", "over the limit of 50000");
}

#[test]
fn the_fullest_list_of_plain_text_fits() {
    let items: Vec<_> = (0..MAX_ITEMS)
        .map(|n| json!({"id": format!("{n:0>64}"), "content": "x".repeat(MAX_ITEM_CHARS), "status": "in_progress"}))
        .collect();
    assert_eq!(applied(&[json!({"todos": items})]).unwrap().0.len(), MAX_ITEMS);
}
