"""Every subword belongs to one word, and the words give the text back, for all kinds of tokenizers."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers import ByT5Tokenizer

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text import tokens
from hf_nmt_interp.text.tokens import Encoded, TokenWords, encode_source, encode_target, find_words, words_of
from tests.fuzzing import examples
from tests.tiny_tokenizers import ENGLISH, GERMAN, make_m2m100_tokenizer, make_nllb_tokenizer

SENTENCES = ENGLISH + GERMAN
# things that tokenizers normalise, split, cannot spell, or use as marks themselves
ODDITIES = [
    *(
        "😀",
        "👩‍👩‍👧",
        "e\u0301",
        "\u0301",
        "…",
        "¨",
        "½",
        "ﷺ",
        "İ",
        "ß",
        "日本語",
        "ひらカタ",
        "ผมที่",
        "ພາສາ",
        "ភាសាខ្មែរ",
        "မြန်မာ",
        "བོད་ཡིག",
        "Ж",
        "\u200b",
        "\u00ad",
        "\ufeff",
        "\x07",
    ),
    *("▁", "Ġ", "##s", "<0xE2>", "<unk>", "[UNK]", "don't", "(a)", '."', "--", "...", ">>", "<<", "\u2028"),
]
SPACES = [" ", "  ", "\u00a0", "\u3000", "\t", "\n"]
CHARACTERS = st.characters(codec="utf-8", exclude_categories=["Cs"])
WORDS = st.one_of(
    st.sampled_from([word for sentence in SENTENCES for word in sentence.split()]),
    st.sampled_from(ODDITIES),
    st.text(CHARACTERS, min_size=1, max_size=4),
)
TEXTS = st.lists(WORDS | st.sampled_from(SPACES), max_size=10).map("".join) | st.sampled_from(SENTENCES)
GIVEN_WORDS = st.lists(WORDS.map(lambda word: "".join(word.split())), max_size=8)

many = examples(25)


def check_map(map_: TokenWords, length: int) -> None:
    """Every subword that is not special has one word, in order."""
    assert len(map_.tokens) == len(map_.word_ids) == len(map_.special) == length
    assert [word is None for word in map_.word_ids] == map_.special
    words = [word for word in map_.word_ids if word is not None]
    assert words == sorted(words)
    assert all(0 <= word < len(map_.words) for word in words)
    assert [i for word in map_.positions for i in word] == [i for i, special in enumerate(map_.special) if not special]


def assume_no_special(tokenizer, text: str) -> None:
    assume(not any(token in text for token in tokenizer.all_special_tokens if token != tokenizer.unk_token))


def by_word(encoded: Encoded) -> list[list[str]]:
    return [[encoded.token_words.tokens[i] for i in word] for word in encoded.token_words.positions]


@many
@given(text=TEXTS)
@pytest.mark.parametrize("encode", [encode_source, encode_target])
def test_words_of_a_sentence_give_it_back(any_tokenizer, encode, text):
    assume_no_special(any_tokenizer, text)
    encoded = encode(any_tokenizer, text)
    side = "text" if encode is encode_source else "text_target"
    starts = side == "text_target" and "Seamless" in type(any_tokenizer).__name__  # with what starts the decoder
    assert encoded.ids == any_tokenizer(**{side: text})["input_ids"][starts:]
    check_map(encoded.token_words, len(encoded.ids))
    assert "".join(encoded.token_words.words) == "".join(text.split())
    spaced = encode(any_tokenizer, text, words="spaces").token_words
    check_map(spaced, len(encoded.ids))
    assert spaced.words == (text.split() or spaced.words)
    assert " ".join(spaced.words) == " ".join(text.split())
    # the cuts make no word without a subword; a tokenizer may drop a lone control character
    assert encoded.token_words.positions.count([]) <= spaced.positions.count([])


@many
@given(text=TEXTS)
def test_words_of_a_segmenter_give_the_text_back(any_tokenizer, text):
    assume_no_special(any_tokenizer, text)
    letters = encode_source(any_tokenizer, text, words=list).token_words  # each character as a word
    check_map(letters, len(letters.tokens))
    assert "".join(letters.words) == "".join(text.split())
    coarser = {*accumulate(map(len, text.split()))}  # ends of what stands between spaces
    assert coarser <= {*accumulate(map(len, letters.words))} or not text.strip()


@many
@given(text=TEXTS)
@pytest.mark.parametrize("encode", [encode_source, encode_target])
def test_words_found_in_a_text_stay_as_they_are(any_tokenizer, encode, text):
    assume_no_special(any_tokenizer, text)
    words = [word[:2] for word in text.split()]  # not those of any tokenizer
    encoded = encode(any_tokenizer, text, spans=find_words(text, words))
    assert encoded.ids == encode(any_tokenizer, text).ids
    check_map(encoded.token_words, len(encoded.ids))
    assert encoded.token_words.words == (words or encoded.token_words.words)


@many
@given(text=TEXTS)
@pytest.mark.parametrize("encode", [encode_source, encode_target])
def test_separate_punctuation_gives_the_letters_back(any_tokenizer, encode, text):
    assume_no_special(any_tokenizer, text)
    encoded = encode(any_tokenizer, text, punctuation="separate")
    check_map(encoded.token_words, len(encoded.ids))
    assert "".join(encoded.token_words.words) == "".join(text.split())


@many
@given(words=GIVEN_WORDS)
@pytest.mark.parametrize("encode", [encode_source, encode_target])
def test_given_words_stay_as_they_are(any_tokenizer, encode, words):
    assume_no_special(any_tokenizer, " ".join(words))
    encoded = encode(any_tokenizer, words)
    assert encoded.ids == encode(any_tokenizer, " ".join(word for word in words if word)).ids
    check_map(encoded.token_words, len(encoded.ids))
    assert encoded.token_words.words == words or not any(words)


@many
@given(words=st.lists(st.sampled_from([word for sentence in SENTENCES for word in sentence.split()]), max_size=8))
@pytest.mark.parametrize("encode", [encode_source, encode_target])
def test_subwords_of_a_given_word_are_its_own(any_tokenizer, encode, words):
    front = ["x"] if "Ġ" in any_tokenizer.get_vocab() else []  # byte-level BPE: the first word has no space
    alone = [by_word(encode(any_tokenizer, [*front, word]))[-1] for word in words]
    assert by_word(encode(any_tokenizer, front + words))[len(front) :] == alone


@many
@given(text=TEXTS, data=st.data())
@pytest.mark.parametrize("is_target", [False, True])
def test_words_of_ids_are_the_decoded_text(any_tokenizer, is_target, text, data):
    if getattr(any_tokenizer, "separate_vocabs", False):
        pytest.skip("decode() mixes up two vocabularies")
    encode = encode_target if is_target else encode_source
    ids = encode(any_tokenizer, "The " + text).ids  # decode() of WordPiece keeps the ## of the first token
    ids += data.draw(st.lists(st.integers(0, len(any_tokenizer) - 1), max_size=4))
    map_ = words_of(any_tokenizer, ids, is_target)
    check_map(map_, len(ids))
    known = [i for i, hidden in zip(ids, map_.special, strict=True) if not hidden and i != any_tokenizer.unk_token_id]
    decoded = any_tokenizer.decode(known, skip_special_tokens=True).replace("\ufffd", "").split()
    map_ = words_of(any_tokenizer, known, is_target)
    check_map(map_, len(known))
    assert "".join("".join(map_.words).replace("\ufffd", "").split()) == "".join(decoded)
    map_ = words_of(any_tokenizer, known, is_target, words="spaces")
    check_map(map_, len(known))
    assert " ".join(map_.words).replace("\ufffd", "").split() == decoded


@many
@given(words=st.lists(st.sampled_from([w for s in SENTENCES for w in s.split() if w.isalpha()]), max_size=8))
def test_words_of_ids_agree_with_words_of_the_sentence(any_tokenizer, words):
    encoded = encode_target(any_tokenizer, " ".join(words))
    assert words_of(any_tokenizer, encoded.ids, is_target=True).word_ids == encoded.token_words.word_ids


@pytest.mark.parametrize("text", ["", " ", "\t\n"])
def test_empty_lines_have_no_word_or_one_empty_word(any_tokenizer, text):
    for map_ in (
        encode_source(any_tokenizer, text).token_words,
        encode_target(any_tokenizer, text, punctuation="separate").token_words,
        words_of(any_tokenizer, any_tokenizer(text)["input_ids"]),
    ):
        check_map(map_, len(map_.tokens))
        assert map_.words == ([] if all(map_.special) else [""])


def test_marian_by_hand(tokenizer_of):
    map_ = encode_source(tokenizer_of("marian"), "The dog doesn't  sleep, Ж.").token_words
    assert map_.tokens == [
        *("▁", "The", "▁do", "g", "▁do", "es", "n", "'", "t", "▁s", "le", "e", "p", ",", "▁", "<unk>", ".", "</s>")
    ]
    assert map_.words == ["The", "dog", "doesn't", "sleep,", "Ж."]
    assert map_.word_ids == [0, 0, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4, None]
    assert map_.special == [False] * 17 + [True]


def test_byte_level_pieces_are_readable(tokenizer_of):
    map_ = encode_target(tokenizer_of("bart"), "über Züge €").token_words
    assert map_.words == ["über", "Züge", "€"]
    assert map_.tokens == ["<s>", "ü", "ber", "Ġ", "Zü", "ge", "Ġ", "â", "Ĥ", "¬", "</s>"]
    assert map_.word_ids == [None, 0, 0, 1, 1, 1, 2, 2, 2, 2, None]


@pytest.mark.parametrize("kind", ["marian_bytes", "m2m100_bytes", "bart"])
def test_bytes_of_one_character_belong_to_its_word(tokenizer_of, kind):
    tokenizer = tokenizer_of(kind)
    encoded = encode_source(tokenizer, "a 😀日 b")
    for map_ in (encoded.token_words, words_of(tokenizer, encoded.ids)):
        assert map_.words == ["a", "😀", "日", "b"]
        assert [len(map_.positions[word]) >= least for word, least in ((1, 4), (2, 3))] == [True, True]  # the bytes
    map_ = encode_source(tokenizer, "a 😀日 b", words="spaces").token_words
    assert map_.words == ["a", "😀日", "b"]
    assert len(map_.positions[1]) >= 7  # the bytes, and a space in some


UNSPACED = {  # pieces as a tokenizer may cut them, and the words they make
    "我买了iPhone15。": (["我", "买了", "iPhone", "15", "。"], ["我", "买了", "iPhone15", "。"]),
    "2024年，好吗？": (["20", "24", "年", "，", "好吗", "？"], ["2024", "年", "，", "好吗", "？"]),
    "人々のラーメン": (["人", "々の", "ラ", "ーメン"], ["人々の", "ラーメン"]),
    "ผมชอบที่นี่": (["ผม", "ชอบ", "ท", "ี่", "นี่"], ["ผม", "ชอบ", "ที่", "นี่"]),
    "ຂ້ອຍມັກ5G": (["ຂ", "້ອຍ", "ມັກ", "5", "G"], ["ຂ້ອຍ", "ມັກ", "5G"]),
    "ខ្ញុំចូលចិត្ត": (["ខ្", "ញុំ", "ចូល", "ចិ", "ត្ត"], ["ខ្ញុំ", "ចូល", "ចិ", "ត្ត"]),
    "don't stop-it": (["don", "'", "t", " stop", "-", "it"], ["don't", "stop-it"]),
    "က္ခ က္ခ": (["က", "္ခ", " ", "က္", "ခ"], ["က္ခ", "က္ခ"]),
    "ལྷ་ས": (["ལྷ", "་", "ས"], ["ལྷ", "་", "ས"]),
}


@pytest.mark.parametrize("text", UNSPACED)
def test_text_without_spaces_is_cut_along_pieces(text):
    pieces, words = UNSPACED[text]
    ends = list(accumulate(map(len, pieces)))
    spans = list(pairwise([0, *ends]))
    found = [text[start:end] for start, end in tokens._word_spans(text, spans, "attached", "pieces")]
    assert found == words
    assert [text[a:b] for a, b in tokens._word_spans(text, spans, "attached", "spaces")] == text.split()


def test_segmenters(tokenizer_of):
    tokenizer = tokenizer_of("bart")
    cut = {"我们买面包": ["我们", "买", "面包"]}
    assert encode_source(tokenizer, "我们买面包", words=cut.__getitem__).token_words.words == ["我们", "买", "面包"]
    with pytest.raises(InputError, match=r"words: 'x' is not what follows in '我们'; a segmenter must return"):
        encode_source(tokenizer, "我们", words=lambda text: ["x"])
    with pytest.raises(
        InputError, match=r"words: '们' is left over after segmentation; it must return the whole text"
    ):
        encode_source(tokenizer, "我们", words=lambda text: ["我"])
    with pytest.raises(InputError, match="words: 'letters' is not one of pieces, spaces"):
        encode_source(tokenizer, "我们", words="letters")


@pytest.mark.parametrize(
    ("kind", "code"), [("marian", ">>de<<"), ("nllb", "deu_Latn"), ("mbart", "de_DE"), ("m2m100", "__de__")]
)
def test_language_codes_are_special_and_no_words(tokenizer_of, kind, code):
    tokenizer = tokenizer_of(kind)
    if kind == "marian":  # stands in the source text
        encoded = [encode_source(tokenizer, f"{code} The dog"), encode_source(tokenizer, [code, "The", "dog"])]
    else:
        encoded = [encode_target(tokenizer, "The dog")]
    for one in encoded:
        for map_ in (one.token_words, words_of(tokenizer, one.ids)):
            assert map_.words == ["The", "dog"]
            assert map_.word_ids[map_.tokens.index(code)] is None
            assert map_.special[map_.tokens.index(code)]


def test_special_tokens_in_the_text(tokenizer_of):
    for kind, eos in {"marian": "</s>", "bart": "</s>", "bert": "[SEP]"}.items():
        tokenizer = tokenizer_of(kind)
        assert encode_source(tokenizer, f"The {eos} dog").token_words.words == ["The", "dog"]
        given = encode_source(tokenizer, ["The", eos, "dog"]).token_words
        assert given.words == ["The", eos, "dog"]
        assert given.special[given.tokens.index(eos)]


@pytest.mark.parametrize("kind", ["marian", "m2m100", "nllb", "mbart", "t5", "bert"])
def test_unknown_word_is_a_word(tokenizer_of, kind):
    tokenizer = tokenizer_of(kind)
    encoded = encode_source(tokenizer, "The Ж dog")
    assert encoded.token_words.words == ["The", "Ж", "dog"]
    assert tokenizer.unk_token in [encoded.token_words.tokens[i] for i in encoded.token_words.positions[1]]
    assert words_of(tokenizer, encoded.ids).words == ["The", tokenizer.unk_token, "dog"]


def test_given_words_keep_their_borders(any_tokenizer):
    words = ["do", "n't", "", "New York", "\u200b", "x."]
    map_ = encode_source(any_tokenizer, words).token_words
    assert map_.words == words
    assert [bool(word) for word in map_.positions] in ([True, True, False, True, has, True] for has in (True, False))


def test_no_word_begins_inside_a_subword(tokenizer_of):
    found = encode_source(
        tokenizer_of("t5"), "The日本語ﷺ"
    ).token_words  # one unknown subword for all but the first word
    assert found.words == ["The", "日本語ﷺ"]
    assert all(found.positions)


def test_punctuation_separate(tokenizer_of):
    text = 'She said: "The dog-house doesn\'t..."'
    for kind in ("marian", "bert"):
        words = encode_source(tokenizer_of(kind), text, punctuation="separate").token_words.words
        assert words == ["She", "said", ":", '"', "The", "dog-house", "doesn't", "...", '"']
    ids = encode_source(tokenizer_of("marian"), "the dog.").ids
    assert words_of(tokenizer_of("marian"), ids, punctuation="separate").words == ["the", "dog", "."]


def test_ids_beyond_the_vocabulary_are_unknown(tokenizer_of):
    tokenizer = tokenizer_of("t5")
    assert words_of(tokenizer, [len(tokenizer) + 3]).words == ["<unk>"]


def test_wrong_input_is_named(tokenizer_of, tmp_path):
    marian = tokenizer_of("marian")
    with pytest.raises(InputError, match="ids: -100 is not a token id; leave out label padding"):
        words_of(marian, [5, -100])
    with pytest.raises(InputError, match="punctuation: 'loose' is not one of attached, separate"):
        encode_source(marian, "a", punctuation="loose")
    with pytest.raises(InputError, match="text: 7 among the words is not a string"):
        encode_source(marian, ["a", 7])
    with pytest.raises(InputError, match="lone surrogate at 1"):
        encode_source(marian, "a\udcff")
    with pytest.raises(InputError, match="ByT5Tokenizer is not supported; supported are SentencePiece"):
        words_of(ByT5Tokenizer(), [5])
    with pytest.raises(InputError, match="ByT5Tokenizer is not supported; supported are SentencePiece"):
        encode_source(ByT5Tokenizer(), "a")
    for make in (make_nllb_tokenizer, make_m2m100_tokenizer):
        tokenizer = make(tmp_path)
        tokenizer.tgt_lang = None
        with pytest.raises(InputError, match="has no target language; set it, "):
            encode_target(tokenizer, "a")


def test_tokenizer_is_left_as_it_was(any_tokenizer):
    before = any_tokenizer("The dog")["input_ids"]
    encode_target(any_tokenizer, "Der Hund")
    words_of(any_tokenizer, before, is_target=True)
    assert any_tokenizer("The dog")["input_ids"] == before


def test_another_segmentation_than_sentencepiece_is_refused(tokenizer_of, monkeypatch):
    tokenizer = tokenizer_of("marian")
    monkeypatch.setattr(tokenizer, "_tokenize", list)  # stands for subword sampling
    with pytest.raises(InputError, match="MarianTokenizer splits 'The dog' differently from its SentencePiece model"):
        encode_source(tokenizer, "The dog")
