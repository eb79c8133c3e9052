"""Several corpora in one training, mixed by weights or by temperature; for many languages, a tag on each source."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crosslight.data.corpus import Corpus, Pairs, PairSource, Part
from crosslight.errors import ConfigError, DataError


@dataclass(kw_only=True)
class Mixture(Corpus):
    """`corpora` by name, each a corpus with its own languages.

    Without `weights` a corpus of n pairs gives n^(1/`temperature`) of an epoch, up to a common factor (Arivazhagan et
    al. 2019): 1 takes every pair once, 5 levels large and small. `weights` name the shares instead. With `tags` each
    source begins with `<2xx>`, xx being its corpus' target language (Johnson et al. 2017). `source_lang` and
    `target_lang` are what the parts have in common, or `mul`.
    """

    corpora: dict[str, Corpus]
    weights: dict[str, float] | None
    temperature: float
    tags: bool

    def __post_init__(self) -> None:
        if not self.corpora:
            raise ConfigError("data.corpora: nothing to mix; see the example in conf/data/mixture.yaml")
        for name, corpus in self.corpora.items():
            if not isinstance(corpus, Corpus):
                raise ConfigError(f"data.corpora.{name}: {corpus!r} is no corpus; it needs a _target_ and its settings")
            if isinstance(corpus, Mixture):
                raise ConfigError(f"data.corpora.{name}: a mixture cannot be part of a mixture; list its corpora here")
        if not self.temperature >= 1:
            raise ConfigError(
                f"data.temperature: {self.temperature} would starve small corpora; 1 is by size, 5 levels"
            )
        if self.weights is not None:
            if self.temperature != 1:
                raise ConfigError("data.temperature: has no effect beside data.weights; set it to 1.0")
            if set(self.weights) != set(self.corpora):
                raise ConfigError(
                    f"data.weights: names {', '.join(self.weights)}, but the corpora are {', '.join(self.corpora)}"
                )
            if not all(0 <= weight < math.inf for weight in self.weights.values()) or not sum(self.weights.values()):
                raise ConfigError(f"data.weights: {self.weights} are no shares; give each corpus a positive number")
        for key in ("source_lang", "target_lang"):
            langs = {getattr(corpus, key) for corpus in self.corpora.values()}
            expected = langs.pop() if len(langs) == 1 else "mul"
            if getattr(self, key) != expected:
                raise ConfigError(f"data.{key}: {getattr(self, key)!r}, but the corpora give {expected!r}")
        if len({c.target_lang for c in self.corpora.values()}) > 1 and not self.tags:
            raise ConfigError("data.tags: with several target languages each source needs its tag; set data.tags=true")

    def training_pairs(self) -> PairSource:
        raise NotImplementedError("a mixture is read by its parts")

    def training_parts(self) -> list[Part]:
        return [
            Part(name, corpus.training_pairs(), corpus.source_lang, corpus.target_lang, self._tag(corpus))
            for name, corpus in self.corpora.items()
        ]

    def validation_sets(self) -> list[Pairs]:
        return [self._tagged(corpus, corpus.validation_pairs()) for corpus in self.corpora.values()]

    def test_pairs(self) -> dict[str, Pairs]:
        """All test sets of all corpora, by `corpus_testset`."""
        tests: dict[str, Pairs] = {}
        for name, corpus in self.corpora.items():
            for test, pairs in corpus.test_pairs().items():
                if (full := f"{name}_{test}") in tests:
                    raise ConfigError(f"data.corpora: two test sets would be called {full}; rename one of the corpora")
                tests[full] = self._tagged(corpus, pairs)
        return tests

    def shares(self, sizes: Sequence[int]) -> list[float] | None:
        if self.weights is not None:
            sought = [self.weights[name] for name in self.corpora]
            for name, size in zip(self.corpora, sizes, strict=True):
                if self.weights[name] and not size:
                    share = self.weights[name] / sum(sought)
                    raise DataError(
                        f"data.weights: {name} shall give {100 * share:.1f} % of each epoch, but has no pair left "
                        f"after cleaning; see the cleaning settings, or give it the weight 0"
                    )
        elif self.temperature == 1:
            return None
        else:
            sought = [size ** (1 / self.temperature) for size in sizes]
        return [share / sum(sought) for share in sought]

    def target_tags(self) -> dict[str, str]:
        return {corpus.target_lang: self._tag(corpus) or "" for corpus in self.corpora.values()} if self.tags else {}

    def _tag(self, corpus: Corpus) -> str | None:
        return f"<2{corpus.target_lang}>" if self.tags else None

    def _tagged(self, corpus: Corpus, pairs: Pairs) -> Pairs:
        return replace(pairs, target_lang=corpus.target_lang, tag=self._tag(corpus))
