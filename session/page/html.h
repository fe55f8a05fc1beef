/* Html: runs as one self-contained page: no script, nothing fetched, light and dark, for
 * phones, screens and paper. */
#ifndef COMPRESS_SESSION_PAGE_HTML_H
#define COMPRESS_SESSION_PAGE_HTML_H

#include "session/page/figures.h"

/* Appends the page. The same runs give the same bytes. */
void html_page(Text *text, const Figures *figures);

/* Appends the table of a run's steps. */
void html_steps(Text *text, Arena *arena, const Run *run);

/* Appends the provenance of a run or model: files, hashes, seed, machine, recipe. */
void html_provenance(Text *text, Arena *arena, const Run *run);

#endif
