"""English words that decide whether a phrase is claimed: negators, function words, turns of phrase.

Knows words as data and nothing else.
"""

from __future__ import annotations

from mmspec.verify.lexicon import words_of

STOPS = frozenset(".;:!?\n()—–")
DETERMINERS = frozenset({"a", "an", "the", "this", "that", "these", "those", "some", "each", "every", "another", "its"})
POSSESSIVES = frozenset({"my", "your", "his", "her", "their", "our", "whose"})
NEGATORS = frozenset(
    {
        "no",
        "not",
        "without",
        "never",
        "nor",
        "neither",
        "none",
        "lacking",
        "lacks",
        "minus",
        "except",
        "nothing",
        "cannot",
    }
)
NEGATING_PAIRS = frozenset(
    {("instead", "of"), ("rather", "than"), ("free", "of"), ("devoid", "of"), ("far", "from"), ("other", "than")}
)
RESUMING = frozenset({"but", "with", "yet", "just", "only", "while", "instead"})
PREPOSITIONS = frozenset({"in", "at", "on", "under", "by", "near", "beside", "above", "behind"})
AUXILIARIES = frozenset(
    [
        "to",
        "i",
        "you",
        "we",
        "they",
        "he",
        "she",
        "it",
        "can",
        "will",
        "must",
        "could",
        "should",
        "would",
        "may",
        "might",
        "don't",
        "who",
        "and",
        "then",
    ]
)
FUNCTION_WORDS = (
    DETERMINERS | POSSESSIVES | NEGATORS | AUXILIARIES | RESUMING
    | frozenset(["in", "on", "at", "of", "by", "for", "from", "into", "over", "under", "above", "below", "near", "beside", "behind", "between", "through", "with", "as", "or", "is", "are", "was", "were", "be", "been", "has", "have", "had", "like", "than", "if", "so", "very", "there", "here", "where", "when", "what", "which", "how", "do", "does", "did"])
)  # fmt: skip
PLAIN_VERBS = frozenset(["lies", "stands", "sits", "hangs", "glows", "flies", "floats", "waits", "walks", "rises", "shines", "falls", "sleeps", "runs", "drifts", "looms", "burns", "grows", "holds", "wears", "carries", "rests", "rolls", "sails", "swims", "rides", "leans", "stares", "watches"])  # fmt: skip
"""Where a sentence about an unknown thing goes on: "a red boat lies below"."""
VERBS_TOO = frozenset(["bear", "duck", "bow", "ring", "train", "book", "fish", "key", "rock", "fire", "ship", "boot", "anchor", "hammer", "drum", "crown", "shield", "mirror", "tower", "bat", "candle", "gear", "truck", "bomb", "coat", "heart", "camera", "balloon", "statue", "tank", "cannon", "canoe", "ghost", "fox", "wolf", "dog", "magnet"])  # fmt: skip
ROOM = frozenset({"space"})
"""Words that mean a place on their own ("in space") and mere room after a determiner ("a dark space")."""
BODY = frozenset({"eye", "heart", "brain", "skull", "chest", "crown", "blade", "shades"})
ABSTRACT = frozenset({"city", "space", "bow", "heart", "eye", "crown", "fire", "storm", "fog", "sea", "ring", "key", "mirror", "cloud", "dawn",
                       "night", "ocean", "desert", "rain", "mist", "haze", "ghost", "bomb", "gem", "train", "jewel", "king", "mountain",
                       "clock", "brain", "lightning", "coat", "twilight", "sunset", "morning", "flames", "phantom"})  # fmt: skip
"""Words of which "X of ..." is a figure of speech: "the heart of the city", "a storm of words"."""
PHRASES = tuple(
    words_of(phrase)
    for phrase in ("keep an eye", "in the eyes of", "train of thought", "open space", "rock music", "light bulb moment", "by heart",
                   "key to", "fire escape", "of the night sky", "good morning", "good evening", "good night", "one day", "rain check",
                   "storm out", "cool cat", "dog days", "space for", "space between", "under fire", "the key is", "night and day",
                   "day and night", "on fire", "rock and roll", "bow down", "cat and mouse", "hot dog", "book a", "ring a bell",
                   "clear blue", "city of", "ship it")
)  # fmt: skip
ABSTRACT_NOUNS = frozenset(["way", "day", "time", "moment", "place", "world", "scene", "picture", "image", "view", "look", "feeling", "sense", "story", "poem", "tale", "part", "side", "kind", "sort", "bit", "lot", "thing", "style", "art", "painting", "illustration", "drawing", "render", "photo", "landscape", "background", "foreground", "description", "sign", "caption", "slogan", "text", "word", "line", "title", "name", "number", "pair", "middle", "left", "right", "top", "bottom", "air", "sky", "light", "shadow", "color", "colour"])  # fmt: skip
