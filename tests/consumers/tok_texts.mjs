// Writes 1,000 difficult texts: scripts, accents composed and not, emoji with joiners, control
// characters, runs of spaces, CR LF, numbers, URLs, very long words, special tokens inside.
//
//     node tok_texts.mjs TEXTS.json
import fs from 'node:fs';

let state = 7n; // a multiplicative generator: the same texts everywhere
const draw = (below) => {
    state = (state * 6364136223846793005n + 1442695040888963407n) & ((1n << 64n) - 1n);
    return Number((state >> 33n) % BigInt(below));
};
const pick = (list) => list[draw(list.length)];
const base = [
    '', '  ', ' ', '\t', '\n', '\r\n', '\r', 'a', 'Hello world', '  leading', 'trailing  ', 'many     spaces   inside', 'tab\tseparated',
    'line\nbreaks\n\nmany\n\n\n', 'CRLF\r\nline\r\n\r\nend', 'The quick brown fox.', "I'll don't can't we've she's they're I'd", 'naïve café Ångström',
    'cafe\u0301 e\u0301\u0323 a\u0300\u0301', 'ﬁ ﬂ ﬃ', 'ＦＵＬＬＷＩＤＴＨ　ｔｅｘｔ！', '½ ² ① ⑳ ㎏ ™ ℃ Ⅷ', '東京は日本の首都です。', '北京是中国的首都', '서울은 대한민국의 수도',
    '각 한글', 'مرحبا بالعالم، كيف حالك؟', 'السَّلَامُ عَلَيْكُمْ ﷺ', 'नमस्ते दुनिया क्षत्रिय', 'தமிழ் எழுத்து', 'ไทยภาษาไทย', 'Ελληνικά', 'Привет, мир! й и\u0306',
    '😀😃 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 👍🏽 ❤️', '1234567890 3.14159 1,000,000 0xFF ٣٤٥ १२३', 'http://example.com/path?query=1&b=%20#frag user@mail.com', '....!!!!???;;;', '“curly” ‘x’ «g» — …',
    'a'.repeat(300), 'ab'.repeat(400), '!'.repeat(200), '漢'.repeat(150), '😀'.repeat(60), ' '.repeat(50) + 'x', '\u00a0nbsp\u2003em\u3000ideo\u200bzero\u200c\u200d\ufeffbom',
    '\u0001\u0002\u0007\u001b[31mred\u007f\u0085', '\u2028line\u2029para', 'İstanbul ıI ß ẞ', 'Z̸̢͕a̷̡͝l̶̛̙g̴̨̘o', '\ufffd \ufffc', '▁already▁marked▁', '▁ ▁▁ x▁', '~ ～ 〜', 'ｶﾞｷﾞ ﾊﾟ', '㍿ ㌔ ﷲ', '\u0301start', '\u200dzwj',
    '\ue000\uf8ff', '𝒜𝓁 𝟘𝟙 𝕳', '𐍈𐌰 𓀀 𠜎', '\u{10ffff} \u{e0001}', 'a\u00adb', '<s>', '</s>', '<unk> inside <pad>', 'text </s> more <s> text', 'a<mask>b <mask> c', '[CLS] [SEP] [MASK]', '<extra_id_0> fill <extra_id_1>x',
    '<|endoftext|> <|im_start|>user\nhi<|im_end|>', '<0x0A> <0x41>', '<bos><eos><start_of_turn>user', 'def f(x):\n    return x**2  # comment\n', '{"json": [1, 2, null]}', 'antidisestablishmentarianism', 'MiXeD cAsE',
];
const pools = [
    [0x20, 0x7f], [0xa0, 0x180], [0x300, 0x370], [0x391, 0x3a2], [0x400, 0x530], [0x590, 0x700], [0x900, 0x97f], [0xe00, 0xe80], [0x1100, 0x1200], [0x1e00, 0x2070], [0x2070, 0x2c00], [0x3000, 0x3400],
    [0x4e00, 0x5200], [0xac00, 0xb000], [0xf900, 0xfe00], [0xfe00, 0xfff0], [0x1d400, 0x1d800], [0x1f300, 0x1f650], [1, 0x20], [0x7f, 0xa0],
];
const words = 'the of and to in machine time traveller said was had that with which from her when you what there'.split(' ');
const character = () => {
    const [from, to] = pick(pools);
    return String.fromCodePoint(from + draw(to - from));
};
const makers = [
    () => Array.from({ length: 1 + draw(30) }, character).join(''),
    () => Array.from({ length: 1 + draw(25) }, () => pick(words)).join(pick([' ', '  ', '\n', ' - '])),
    () => Array.from({ length: 1 + draw(12) }, () => pick(words) + pick([' ', '', '  ', ', ', '\n', "'s ", '\t']) + pick(['', character(), String(draw(1000000))])).join(''),
    () => pick(base) + pick(['', ' ']) + pick(base),
    () => {
        const all = [...pick(base)];
        all.splice(draw(all.length + 1), 0, pick([' ', '\u0301', '\u200d', 'x', '\n', '▁', '<s>', '</s>']));
        return all.join('');
    },
];
const texts = new Set(base);
while (texts.size < 1000) {
    const text = pick(makers)();
    // what is not assigned, or came lately, Unicode versions disagree on; Σ is told apart on purpose
    if (!/\p{Cn}|\p{Cs}|\u061d|\u09fd|Σ/u.test(text)) texts.add(text);
}
fs.writeFileSync(process.argv[2], JSON.stringify([...texts]));
