"""Old German spelling."""

from hf_nmt_interp.text.spelling import new_spelling

TRAINING = ["Ich weiß, dass er muss.", "Dass! Das Maß ist groß.", "daß muß", "Die Masse, die Masse"]


def test_the_more_frequent_form_wins_whatever_its_case() -> None:
    assert new_spelling(["Daß ich daß weiß .", "DAß"], TRAINING) == ["Dass ich dass weiß .", "DAss"]


def test_ties_and_unknown_words_stay() -> None:
    assert new_spelling(["muß ich Boß-Maß , Straße"], TRAINING) == ["muß ich Boß-Maß , Straße"]


def test_the_number_of_words_and_the_spaces_stay() -> None:
    text = "  daß\u00a0ich ,  ( daß ) "
    assert new_spelling([text], TRAINING) == [text.replace("ß", "ss")]


def test_training_text_is_not_read_for_text_without_eszett() -> None:
    def unread():
        raise AssertionError
        yield ""

    assert new_spelling(["That is fine ."], unread()) == ["That is fine ."]
