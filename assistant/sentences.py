"""What the product itself says in place of an answer, in the language of the question.

Seven languages by hand, English for every other. The language is told by script and by function words: good enough to
choose among seven, and wrong only in a sentence that the reader still recognises.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from search.language import is_english

MOST_FOREIGN_LETTERS = 0.2  # as in search.language


@dataclass(frozen=True, slots=True)
class Sentences:
    """`looked` and `best` are joined into one sentence; counts stand where no plural form depends on them."""

    not_found: str
    not_mentioned: str  # {names}
    either: str  # between names
    no_repository: str
    looked: str  # {chosen} {readable} {passages}
    best: str  # {best} {needed}
    end: str
    nothing_cited: str


ENGLISH = Sentences(
    "I did not find this in the indexed code.",
    "I did not find this in the indexed code: none of the passages that came closest mentions {names}.",
    "or",
    "There is no indexed repository to search yet. Add one under Repositories, then ask again.",
    "Looked in {chosen} of {readable}, {passages}",
    ", best score {best} ({needed} needed)",
    ".",
    "This answer cites no passage, so nothing in it could be verified.",
)
_SENTENCES = {
    "en": ENGLISH,
    "de": Sentences(
        "Das habe ich im indizierten Code nicht gefunden.",
        "Das habe ich im indizierten Code nicht gefunden: Keine der nächstliegenden Stellen erwähnt {names}.",
        "oder",
        "Es gibt noch kein indiziertes Repository. Füge unter „Repositories“ eines hinzu und frage dann noch einmal.",
        "Gesucht in {chosen} von {readable} Repositories, {passages} Stellen",
        ", beste Wertung {best} (nötig: {needed})",
        ".",
        "Diese Antwort nennt keine Stelle, also konnte nichts darin geprüft werden.",
    ),
    "fr": Sentences(
        "Je n'ai pas trouvé cela dans le code indexé.",
        "Je n'ai pas trouvé cela dans le code indexé : aucun des passages les plus proches ne mentionne {names}.",
        "ou",
        "Aucun dépôt n'est encore indexé. Ajoutez-en un sous « Repositories », puis reposez la question.",
        "Cherché dans {chosen} dépôts sur {readable}, {passages} passages",
        ", meilleur score {best} (il faut {needed})",
        ".",
        "Cette réponse ne cite aucun passage : rien n'a donc pu y être vérifié.",
    ),
    "es": Sentences(
        "No encontré esto en el código indexado.",
        "No encontré esto en el código indexado: ninguno de los pasajes más cercanos menciona {names}.",
        "ni",
        "Todavía no hay ningún repositorio indexado. Añade uno en «Repositories» y pregunta de nuevo.",
        "Se buscó en {chosen} de {readable} repositorios, {passages} pasajes",
        ", mejor puntuación {best} (se necesita {needed})",
        ".",
        "Esta respuesta no cita ningún pasaje, así que nada en ella se pudo comprobar.",
    ),
    "ru": Sentences(
        "В проиндексированном коде я этого не нашёл.",
        "В проиндексированном коде я этого не нашёл: ни в одном из ближайших фрагментов нет {names}.",
        "или",
        "Пока нет ни одного проиндексированного репозитория. Добавьте его в разделе Repositories и спросите снова.",
        "Просмотрено репозиториев: {chosen} из {readable}, фрагментов: {passages}",
        ", лучшая оценка {best} (нужно {needed})",
        ".",
        "Ответ не ссылается ни на один фрагмент, поэтому проверить в нём нечего.",
    ),
    "zh": Sentences(
        "在已索引的代码中没有找到相关内容。",
        "在已索引的代码中没有找到相关内容：最接近的片段都没有提到 {names}。",
        "或",
        "还没有已索引的代码仓库。请先在 Repositories 中添加一个，然后再提问。",
        "已查找 {readable} 个仓库中的 {chosen} 个，{passages} 个片段",
        "，最高得分 {best}（需要 {needed}）",
        "。",
        "这个回答没有引用任何片段，因此其中的内容无法核实。",
    ),
    "ar": Sentences(
        "لم أجد هذا في الشيفرة المفهرسة.",
        "لم أجد هذا في الشيفرة المفهرسة: لا يذكر أي من أقرب المقاطع {names}.",
        "أو",
        "لا يوجد أي مستودع مفهرس بعد. أضف واحدًا ضمن Repositories ثم اسأل من جديد.",
        "المستودعات التي جرى البحث فيها: {chosen} من {readable}، المقاطع: {passages}",
        "، أفضل نتيجة {best} (المطلوب {needed})",
        ".",
        "لا يستشهد هذا الجواب بأي مقطع، لذلك لم يمكن التحقق من شيء فيه.",
    ),
}
_SCRIPTS = {
    "ru": re.compile(r"[\u0400-\u04ff]"),
    "zh": re.compile(r"[\u4e00-\u9fff]"),
    "ar": re.compile(r"[\u0600-\u06ff]"),
}
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]")
_WORDS = {
    "de": frozenset(
        "der das den dem ist sind wird werden wie wo warum welche nicht und oder ein eine für mit von".split()
    ),
    "fr": frozenset(
        "le la les une du est sont où quel quelle pourquoi comment dans avec pour qui que des il cette".split()
    ),
    "es": frozenset("el los las una cómo como dónde donde qué cuál por está están para con se en del guarda".split()),
}
_LETTERS = re.compile(r"[^\W\d_]")
_WORD = re.compile(r"[^\W\d_]+")


def sentences_for(question: str) -> Sentences:
    return _SENTENCES[_language(question)]


def _language(question: str) -> str:
    letters = _LETTERS.findall(question)
    if not _KANA_OR_HANGUL.search(question):
        for language, script in _SCRIPTS.items():
            if len(script.findall(question)) > MOST_FOREIGN_LETTERS * len(letters):
                return language
    if is_english(question):
        return "en"
    words = [word.lower() for word in _WORD.findall(question)]
    counts = {language: sum(word in known for word in words) for language, known in _WORDS.items()}
    best = max(counts, key=lambda language: counts[language])
    return best if counts[best] else "en"
