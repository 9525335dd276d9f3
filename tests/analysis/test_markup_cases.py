"""Mark-up by the translator in the box: what a user would type, and what comes out.

The translations are the small translator's own, some of them wrong; what counts is where the mark-up goes.
"""

import pytest

import hf_nmt_interp as hni

CASES = {
    "Tom &amp; Mary have a <b>red</b> car.": "Tom &amp; Maria hat ein <b>rotes</b> Auto.",
    "I like <b>salt &amp; pepper</b>.": "Ich mag <b>Salz &amp; Pfeffer</b>.",
    "I like tea &#38; coffee.": "Ich mag Tee &#38; Kaffee.",
    "<b>&amp;</b>": "<b>&amp;</b>",
    "Buy <b>milk</b>.": "<b>Milch ist Milch</b>.",
    "Visit https://example.com/a?b=1&c=2 today.": "Vitititieren https://example.com/a?b=1&c=2 Sie heute.",
    "Write to tom@example.com, please.": "Schreiben Sie tom@example.com bitte.",
    "You have {n, plural, one {# car} other {# cars}}.": "Du hast {n, plural, one {# car} other {# cars}}.",
    "Hello ${user.name}, welcome!": "Hallo ${user.name}!",
    "Your order #{{id}} is ready.": "Deine Befehl #{{id}} ist bereit.",
    "Hello %1$s, you have %2$d new messages.": "Hallo %1$s, du hast %2$d neue Nachrichten.",
    "Press <kbd>Ctrl</kbd>+<kbd>C</kbd> to stop.": "Prüsssen Sie <kbd>Ctrl</kbd>+<kbd>C</kbd> aufhören.",
    "<p>I like tea. She has a red car.</p>": "<p>Ich mag Tee. Sie hat ein rotes Auto.</p>",
    "<p>The cat is sleeping. <b>The dog</b> is big.</p>": "<p>Die Katze schläft. <b>Der Hund</b> ist groß.</p>",
    "I <b>really</b> like <a href='#'>green tea</a>.": "Ich mag <b>wirklich</b> <a href='#'>grüne Tee</a>.",
    'Click <a href="x">here</a>!': 'Klick <a href="x">hier</a>!',
    "Do <em>not</em> open the door.": "Öffne die Tür <em>nicht</em>.",
    "She said: &quot;I am tired.&quot;": "Sie sagte, &quot;ich bin müde.&quot;",
    "The <code>print()</code> function is easy.": "Der <code>print()</code> Spaß ist leicht.",
    "<b>Yesterday</b> we bought <i>fresh</i> bread.": "<b>Gestern</b> haben wir das <i>frische</i> Brot gekauft.",
    "I have 5&nbsp;brothers.": "Ich habe 5&nbsp;Brüder.",
    "<ul><li>I like tea.</li><li>I like coffee.</li></ul>": "<ul><li>Ich mag Tee.</li><li>Ich mag Kaffee.</li></ul>",
    "I like <b>tea</b>, <i>coffee</i> and <u>milk</u>.": "Ich mag <b>Tee</b> <i></i>und <u>Milch</u>.",
    '<a href="x"><b>Tom</b></a> is here.': '<a href="x"><b>Tom</b></a> ist hier.',
    "Where is the <b>station</b>?": "Wo ist der <b>Bahnhof</b>?",
    "My <b>brother</b> lives in <i>Boston</i>.": "Mein <b>Bruder</b> lebt in <i>Boston</i>.",
    "<b>Where</b> are you?": "<b>Wo</b> bist du?",
    "I do not know <i>where</i> my <b>keys</b> are.": "Ich weiß nicht, <i>wo</i> meine <b>Schlüssel</b> sind.",
    'Tom is <span class="x">very tired</span> today.': 'Tom ist heute <span class="x">sehr müde</span>.',
    "This is <b>not</b> my <b>book</b>.": "Das ist <b>nicht</b> mein <b>Buch</b>.",
    "He works at AT&amp;T.": "Er arbeitet an AT&amp;T.",
    "It isn&#39;t <b>cold</b>.": "Es ist nicht <b>kalt</b>.",
    "Tom said %s is here.": "Tom sagte, hier %s ist hier.",
    "<h1>Good morning</h1><p>How are you?</p>": "<h1>Guten Morgen!</h1><p>Wie geht es dir?</p>",
    "I saw her<br>yesterday.": "Ich habe sie<br>gestern gesehen.",
    "<b>I am hungry.</b> What do you want?": "<b>Ich habe Hunger.</b> Was willst du?",
    "Is this <b>your</b> car?": "Ist das <b>dein</b> Auto?",
    "My father is <em>a doctor</em>.": "Mein Vater ist <em>Arzt</em>.",
    "The book is on the <b>table</b>.": "Das Buch ist auf dem <b>Tisch</b>.",
    "I gave <i>her</i> a <b>book</b>.": "Ich gab <i>ihr</i> ein <b>Buch</b>.",
    "You can find it at www.example.org.": "Du kannst es finden www.example.org.",
    "<b>Tom</b>, come here!": "<b>Tom</b>, komm her!",
    "Do you have <u>any questions</u>?": "Hast du <u>Fragen</u>?",
    'It is <time datetime="2020">ten o\'clock</time>.': 'Es ist <time datetime="2020">zehn Uhr</time>.',
    "<p>Hello!</p><p>My name is <b>{name}</b>.</p>": "<p>Hallo!</p><p>Mein Name ist <b>{name}</b>.</p>",
    'Close the <a href="/x?a>b">door</a>, please.': 'Schließen Sie bitte die <a href="/x?a>b">Tür</a>.',
    "I love <b>you</b>!": "Ich liebe <b>dich</b>!",
    "We <i>have to</i> go now.": "Wir <i>müssen</i> jetzt gehen.",
    "<i>Do you speak <b>English</b>?</i>": "<i>Sprichst du <b>Englisch</b>?</i>",
    "There is a <b>cat</b> under the table.": "Da ist eine <b>Katze</b> unter dem Tisch.",
    "The <b><i>old</i> man</b> is my grandfather.": "Der <b><i>alte</i> Mann</b> ist mein Großvater.",
    "He has three <b>children</b>.": "Er hat drei <b>Kinder</b>.",
    "<!-- greeting -->Good night.": "<!-- greeting -->Gute Nacht!",
    'I am <x id="1"/>happy<x id="2"/> today.': 'Ich bin heute <x id="1"/>glücklich<x id="2"/>.',
    "That is <0>my house</0>.": "Das ist <0>mein Haus</0>.",
    "{{greeting}}, my name is Tom.": "{{greeting}} Mein Name ist Tom.",
    "What <b>is</b> the time?": "Was <b>ist</b> die Zeit?",
    "The water is <b>cold</b>.": "Das Wasser ist <b>kalt</b>.",
    'I want to <a href="x">learn German</a>.': 'Ich will <a href="x">Deutsch lernen</a>.',
    "Tom has <b>a big house</b>.": "Tom hat <b>ein großes Haus</b>.",
    "The train leaves at <b>six</b>.": "Der Zug fährt um <b>sechs</b> ab.",
    "Who <em>wrote</em> this letter?": "Wer <em>hat</em> diesen Brief geschrieben?",
    "The dog is <b>under</b> the table.": "Der Hund ist <b>unter</b> dem Tisch.",
    "<b>My mother</b> is at home.": "<b>Meine Mutter</b> ist zu Hause.",
    "I like <b>tea</b> and %s.": "Ich mag <b>Tee</b> und Tee %s.",
    "It costs %.2f dollars.": "Es kostet %.2f Dollar.",
    "<br/>The dog is big.": "<br/>Der Hund ist groß.",
    "The dog<br/>is big.": "Der Hund<br/>ist groß.",
    "I like <b></b> tea.": "Ich mag <b></b> Tee.",
    "I like<b></b> tea.": "Ich mag<b></b> Tee.",
    "I like &lt;tea&gt; now.": "Ich mag jetzt &lt;Tee&gt;.",
    "She said &quot;I am tired&quot; and left.": "Sie sagte, &quot;ich sei müde&quot; und ging weg.",
    "&euro;5 &lt;now&gt;": "&lt;Jetzt ist jetzt&gt; &euro;5.",
    "I like tea&nbsp;": "Ich mag Tee.&nbsp;",
    "Tom&nbsp;is here.": "Tom&nbsp;ist hier.",
    "The train is 5&nbsp;% faster.": "Der Zug ist fünf&nbsp;% schneller.",
    "&lt;b&gt;Tom&lt;/b&gt; is here.": "&lt;b&gt;Tom&lt;/b&gt; ist hier.",
    "I like &lt;i&gt;green tea&lt;/i&gt;.": "Ich mag &lt;i&gt;grüne Tee&lt;/i&gt;.",
    "&lt;p&gt;I sing.&lt;/p&gt;&lt;p&gt;Go!&lt;/p&gt;": "&lt;p&gt;Ich singe.&lt;/p&gt;&lt;p&gt;Geh!&lt;/p&gt;",
    "<ul>\n<li>I sing.</li>\n<li>She sings.</li>\n</ul>": "<ul><li>Ich singe.</li> <li>Sie singt.</li></ul>",
    "<tr><td>Good morning!</td><td>Thank you.</td></tr>": "<tr><td>Guten Morgen!</td><td>Danke.</td></tr>",
    "<div>I am hungry.<br>What do you want?</div>": "<div>Ich habe Hunger.<br>Was willst du?</div>",
}


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return dict(zip(CASES, hni.transfer_markup(list(CASES), *hni.load_demo("en-de")), strict=True))


@pytest.mark.parametrize("source", CASES)
def test_where_tags_and_placeholders_go(found, source) -> None:
    assert found[source] == CASES[source]
