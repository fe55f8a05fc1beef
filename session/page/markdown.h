/* Markdown: runs in short, for the comment of a pull request. */
#ifndef COMPRESS_SESSION_PAGE_MARKDOWN_H
#define COMPRESS_SESSION_PAGE_MARKDOWN_H

#include "session/page/runs.h"

/* Appends the text: of one run its numbers before and after, of several a table of them;
 * how runs failed, and their steps, folded. Names from reports stand as code. */
void markdown_page(Text *text, Arena *arena, const Run *runs, int count);

#endif
