/* The style sheet of pages: see html_style.h. Light unless the reader's system or the
 * switch on the page wants it dark; always light on paper. */
#include "session/page/html_style.h"

#include "session/page/palette.h"

static const char page_light[] =
    "color-scheme:light;--bg:#f5f6f9;--line:#e0e4ec;--good:#0a7a56;--bad:#b93a12;"
    "--good-bg:#e3f4ec;--bad-bg:#fdebe3;--chip:#eceff4;";

static const char page_dark[] =
    "color-scheme:dark;--bg:#0d1015;--line:#272d38;--good:#4fd6a5;--bad:#ff9a70;"
    "--good-bg:#12302a;--bad-bg:#3a2018;--chip:#222834;";

static const char rules[] =
    /* ---- ground ---- */
    "*{box-sizing:border-box}"
    "html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}"
    "body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.55 "
    "system-ui,-apple-system,\"Segoe UI\",Roboto,\"Helvetica Neue\",Arial,sans-serif;"
    "font-variant-numeric:tabular-nums;overflow-wrap:anywhere}"
    "header,main,footer{max-width:1180px;margin:0 auto;padding:0 24px}"
    "h1,h2,h3{line-height:1.2;letter-spacing:-.015em;margin:0}"
    "h1{font-size:clamp(26px,4.6vw,40px);font-weight:700;letter-spacing:-.025em}"
    "h2{font-size:22px;font-weight:650}"
    "h3{font-size:16px;font-weight:650}"
    "p{margin:0}"
    "a{color:inherit}"
    "code,pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans "
    "Mono\",monospace}"
    ".muted{color:var(--muted)}"
    ".sr{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}"
    ":focus-visible{outline:2px solid var(--c0);outline-offset:2px}"
    /* ---- head ---- */
    "header{padding-top:36px;padding-bottom:8px}"
    ".bar{display:flex;justify-content:space-between;align-items:center;gap:16px;"
    "margin-bottom:22px}"
    ".mark{font-weight:650;letter-spacing:-.01em;display:flex;align-items:center;gap:9px}"
    ".mark svg{width:22px;height:22px;flex:none}"
    ".theme{border:1px solid var(--line);border-radius:8px;padding:2px;margin:0;"
    "display:flex;background:var(--paper);min-width:0}"
    ".theme label{cursor:pointer}"
    ".theme input{position:absolute;opacity:0;width:1px;height:1px}"
    ".theme span{display:block;padding:2px 10px;border-radius:6px;font-size:12.5px;"
    "color:var(--muted)}"
    ".theme input:checked+span{background:var(--chip);color:var(--ink)}"
    ".theme input:focus-visible+span{outline:2px solid var(--c0)}"
    ".lead{margin-top:8px;color:var(--muted);font-size:16px;max-width:96ch}"
    "nav{display:flex;flex-wrap:wrap;gap:6px 20px;margin-top:20px;font-size:14px}"
    "nav a{text-decoration:none;color:var(--muted);padding:2px 0}"
    "nav a:hover{color:var(--ink)}"
    /* ---- sections ---- */
    "section{margin-top:44px;scroll-margin-top:12px}"
    "section>h2+p{margin-top:4px;color:var(--muted);max-width:76ch}"
    "section>h2~*{margin-top:16px}"
    ".card{background:var(--paper);border:1px solid var(--line);border-radius:12px;"
    "padding:16px 18px}"
    ".run{display:flex;flex-wrap:wrap;align-items:center;gap:6px 10px}"
    ".dot{width:10px;height:10px;border-radius:3px;flex:none}"
    ".b0{background:var(--c0)}.b1{background:var(--c1)}.b2{background:var(--c2)}"
    ".b3{background:var(--c3)}.b4{background:var(--c4)}.b5{background:var(--c5)}"
    ".badge{font-size:12px;line-height:1;padding:4px 8px;border-radius:99px;"
    "background:var(--chip);color:var(--muted)}"
    ".badge.good{background:var(--good-bg);color:var(--good)}"
    ".badge.bad{background:var(--bad-bg);color:var(--bad)}"
    ".call{border-left:3px solid var(--bad);background:var(--bad-bg);border-radius:6px;"
    "padding:10px 14px;margin-top:12px}"
    ".call.warn{border-color:var(--c4);background:var(--chip)}"
    ".call ul{margin:0;padding-left:18px}"
    /* ---- tiles ---- */
    ".tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,188px),"
    "1fr));gap:12px;margin-top:14px}"
    ".tile{background:var(--paper);border:1px solid var(--line);border-radius:12px;"
    "padding:14px 16px;display:flex;flex-direction:column}"
    ".tile .k{font-size:13px;color:var(--muted)}"
    ".tile .k::first-letter,th::first-letter{text-transform:uppercase}"
    ".tile .v{font-size:25px;font-weight:650;letter-spacing:-.02em;line-height:1.25;"
    "margin-top:2px}"
    ".tile .d{font-size:13px;line-height:1.45;color:var(--muted)}"
    ".tile svg{width:100%;height:6px;display:block;margin-top:auto;padding-top:0}"
    ".tile .gap{flex:1;min-height:10px}"
    ".up{color:var(--good);font-weight:600}.down{color:var(--bad);font-weight:600}"
    /* ---- pictures ---- */
    ".grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),"
    "1fr));gap:14px}"
    "figure{margin:0;min-width:0}"
    "figure svg{display:block;width:100%;height:auto}"
    "figcaption{font-weight:600;font-size:14px;margin-bottom:10px}"
    "figcaption::first-letter{text-transform:uppercase}"
    "figure .note{font-size:12.5px;line-height:1.45;color:var(--muted);margin-top:8px}"
    ".states{display:flex;flex-wrap:wrap;gap:14px 20px;margin-top:12px}"
    ".states figure{width:150px}"
    ".states figcaption{font-size:13px;line-height:1.3;margin-bottom:8px;min-height:2.6em}"
    ".states figcaption small{display:block;font-weight:400;font-size:12px;"
    "color:var(--muted)}"
    ".key{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:12.5px;color:var(--muted)}"
    ".key i{display:inline-block;width:11px;height:11px;border-radius:2px;"
    "margin-right:6px;vertical-align:-1px}"
    ".key i.empty{background:var(--track)}"
    ".key i.hollow{border:1.5px solid var(--c0)}"
    ".key i.round{border-radius:50%;width:8px;height:8px;vertical-align:1px}"
    /* ---- tables ---- */
    "table{border-collapse:collapse;width:100%;font-size:14px}"
    "th{font-weight:500;color:var(--muted);font-size:12.5px;text-align:left;"
    "vertical-align:bottom}"
    "th,td{padding:8px 12px;border-top:1px solid var(--line);vertical-align:top}"
    "thead th{border-top:0}"
    "td:nth-child(2){min-width:8.6em}"
    ".num{text-align:right;white-space:nowrap}"
    "td small,.tile small{display:block;color:var(--muted);font-size:12px}"
    ".table{padding:6px 6px}"
    "td .run{flex-wrap:nowrap;align-items:baseline}"
    "td .run b{font-weight:600}"
    "tr.total td{font-weight:650}"
    "details summary{cursor:pointer}"
    "details summary:hover{color:var(--c0)}"
    "td details dl{margin:6px 0 2px}"
    "dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:3px 16px;"
    "margin:0;font-size:14px}"
    "dt{color:var(--muted)}dd{margin:0;min-width:0}"
    "td dl{font-size:12.5px;gap:1px 12px}"
    "pre{margin:10px 0 0;padding:12px 14px;background:var(--bg);border:1px solid "
    "var(--line);border-radius:8px;white-space:pre-wrap;max-height:480px;overflow:auto}"
    ".stack>*+*{margin-top:14px}"
    "footer{padding-top:40px;padding-bottom:48px;color:var(--muted);font-size:13px}"
    /* ---- small and printed ---- */
    "@media(max-width:720px){body{font-size:14.5px}header,main,footer{padding-left:16px;"
    "padding-right:16px}header{padding-top:20px}.wide{display:none}section{margin-top:"
    "34px}.card{padding:14px}.table{padding:4px 2px}th,td{padding:7px 8px}"
    ".tiles{grid-template-columns:repeat(2,minmax(0,1fr));gap:10px}.tile{padding:12px}"
    ".tile .v{font-size:20px}.states{gap:14px 12px}.states "
    "figure{width:calc(50% - 6px)}dl{grid-template-columns:minmax(0,1fr);gap:0}"
    "dd+dt{margin-top:8px}}"
    "@media print{body{background:#fff;font-size:11pt}.theme,nav{display:none}"
    "header,main,footer{max-width:none;padding:0}.card,.tile,figure,tr{break-inside:"
    "avoid}section{margin-top:24px}h2{break-after:avoid}.grid{grid-template-columns:"
    "repeat(2,1fr)}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}";

void html_style(Text *text) {
    text_add(text, ":root{%s%s}", page_light, palette_light);
    text_add(text, "@media screen and (prefers-color-scheme:dark){:root{%s%s}}",
             page_dark, palette_dark);
    text_add(text, "@media screen{:root:has(#theme-light:checked){%s%s}", page_light,
             palette_light);
    text_add(text, ":root:has(#theme-dark:checked){%s%s}}", page_dark, palette_dark);
    text_add(text, "%s%s", rules, palette_rules);
}
