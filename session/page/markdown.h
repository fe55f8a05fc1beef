/* Markdown: a summary of runs, for a comment on a pull request. */
#ifndef COMPRESS_SESSION_PAGE_MARKDOWN_H
#define COMPRESS_SESSION_PAGE_MARKDOWN_H

#include "session/page/runs.h"

/* Appends the text: for one run its numbers before and after, for several a table of
 * them; how runs failed, and their steps, folded. Names from reports are set as code. */
void markdown_page(Text *text, Arena *arena, const Run *runs, int count);

#endif
