from gpu_runner.core.diff import Row, diff


def test_equal_sources_have_no_hunks() -> None:
    result = diff("a\nb\n", "a\nb\n")

    assert (result.hunks, result.added, result.removed) == ((), 0, 0)


def test_a_changed_line_marks_the_words_that_changed() -> None:
    result = diff("x = load(p, mask=m)\n", "x = load(p, mask=n)\n")

    assert result.hunks[0].rows == (
        Row("change", 1, 1, "x = load(p, mask=m)", "x = load(p, mask=n)", ((17, 18),), ((17, 18),)),
    )


def test_insertions_and_deletions_keep_their_numbers_and_context() -> None:
    result = diff("a\nb\nc\n", "a\nc\nd\n", context=1)

    assert [(row.kind, row.old_number, row.new_number) for row in result.hunks[0].rows] == [
        ("same", 1, 1),
        ("delete", 2, None),
        ("same", 3, 2),
        ("insert", None, 3),
    ]
    assert (result.added, result.removed) == (1, 1)


def test_distant_changes_are_separate_hunks() -> None:
    old = [f"line {i}" for i in range(40)]
    new = ["first", *old[1:39], "last"]

    assert len(diff("\n".join(old), "\n".join(new)).hunks) == 2
