/* The style sheet of pages. */
#ifndef COMPRESS_SESSION_PAGE_HTML_STYLE_H
#define COMPRESS_SESSION_PAGE_HTML_STYLE_H

#include "ir/text.h"

/* Appends all rules, without the element around them. */
void html_style(Text *text);

#endif
