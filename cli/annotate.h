/* Annotations: errors and warnings in the form that lets a CI service show them next to
 * the lines of the file that they are about.
 *
 *   - GitHub Actions reads workflow commands from a step's output:
 *     "::error file=recipes/a.yaml,line=7,col=3,title=passes[0]::what is wrong".
 *   - GitLab takes a Code Quality report, a JSON file that the job names as
 *     artifacts:reports:codequality. */
#ifndef COMPRESS_CLI_ANNOTATE_H
#define COMPRESS_CLI_ANNOTATE_H

#include "cli/command.h"

/* Values of --annotate, in the order of Annotate. */
#define ANNOTATE_NAMES "never|auto|github|gitlab"

typedef enum Annotate {
    ANNOTATE_NEVER,
    ANNOTATE_AUTO, /* for the CI service that the environment indicates, if any */
    ANNOTATE_GITHUB,
    ANNOTATE_GITLAB
} Annotate;

/* The name that GitLab's documentation uses for the report. */
#define ANNOTATE_FILE "gl-code-quality-report.json"

/* Checks, before anything is done, that the report of --annotate can be written and
 * replaces only an earlier report, unless --force is given. Fails with STATUS_IO, and
 * with STATUS_USAGE if another flag names the same file. */
Status annotate_check(const Cli *cli, Diag *diag);

/* Reports what `told` holds: to stderr, or as a report to `file` (NULL: ANNOTATE_FILE),
 * which is an empty list when there is nothing. Messages without a place in a file are
 * attributed to `recipe` (may be NULL). Paths inside the checkout ($GITHUB_WORKSPACE,
 * $CI_PROJECT_DIR) are relative to it. Fails with STATUS_IO. */
Status annotate(const Diag *told, Annotate how, const char *file, const char *recipe,
                Diag *diag);

#endif
