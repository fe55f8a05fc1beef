# Sourced by cases: what headless Chromium makes of pages.
#   look PAGE WIDTH...   opens the page in frames of these widths and prints for each
#                        whether it is wider than its frame, and what it asked for
# The page is framed by one of ours, whose script looks at it: the page itself allows none.

chromium_program() { command -v chromium || command -v chromium-browser; }

look() {
    page=$1
    shift
    cat >frame.html <<END
<!doctype html><meta charset="utf-8"><body><script>
const widths = "$*".split(" ").map(Number), lines = [];
function ready(frame, width) {
    const view = frame.contentWindow, root = view.document.documentElement;
    for (const part of view.document.querySelectorAll("details")) part.open = true;
    const wide = Math.max(root.scrollWidth, view.document.body.scrollWidth);
    const past = [...view.document.querySelectorAll("body *")].filter(
        e => e.checkVisibility() && !e.closest("pre, .sr, svg") &&
             e.getBoundingClientRect().right > width + 0.5);
    const text = [...view.document.querySelectorAll("svg text")].filter(e => {
        const svg = e.ownerSVGElement.getBoundingClientRect();
        const own = e.getBoundingClientRect();
        return own.width && (own.left < svg.left - 2 || own.right > svg.right + 2);
    });
    lines.push(width + ": " + (wide > width ? "overflow to " + wide : "fits") +
        ", elements past the edge " + past.length +
        ", labels outside of pictures " + text.length +
        ", requests " + view.performance.getEntriesByType("resource").length +
        ", pictures " + (view.document.querySelectorAll("figure svg").length > 0) +
        ", title " + (view.document.title.length > 0));
    if (lines.length == widths.length)
        document.body.textContent = "LOOK " + lines.sort((a, b) => parseInt(a) - parseInt(b)).join("|") + "|";
}
for (const width of widths) {
    const frame = document.createElement("iframe");
    frame.style = "border:0;height:2000px;width:" + width + "px";
    frame.onload = () => ready(frame, width);
    frame.src = "$page";
    document.body.append(frame);
}
</script>
END
    # no profile of anybody's, nothing of the browser's own in the way
    $(chromium_program) --headless --no-sandbox --disable-gpu --disable-web-security \
        --allow-file-access-from-files --user-data-dir="$PWD/profile" --no-first-run \
        --disable-background-networking --virtual-time-budget=10000 --timeout=30000 \
        --dump-dom "file://$PWD/frame.html" 2>/dev/null |
        sed -n 's/.*LOOK \(.*\)|<.*/\1/p' | tr '|' '\n'
}
