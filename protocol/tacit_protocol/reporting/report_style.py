"""The report's stylesheet: one A4 page in print, readable on any screen, light and dark."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #4d5761; --line: #c9d1d9; --accent: #0b57a4; }
* { box-sizing: border-box; }
body { margin: 0; font: 14px/1.4 system-ui, "DejaVu Sans", sans-serif; color: var(--ink); background: #fff; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5em; line-height: 1.2; margin: 0 0 .2em; }
h2 { font-size: 1em; margin: .8em 0 .2em; border-top: 1px solid var(--line); padding-top: .5em; }
p { margin: .2em 0; }
.soft { color: var(--soft); font-size: .9em; }
.verdict { font-size: 1.15em; font-weight: 600; border-left: 4px solid var(--accent); padding: .2em .6em; }
.warnings { margin: .3em 0; padding-left: 1.2em; font-size: .9em; }
.columns { display: grid; gap: 0 1.5rem; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); }
figure { margin: .4em 0; }
figcaption { font-weight: 600; font-size: .9em; }
figure svg { display: block; width: 100%; height: auto; background: #fff; }
table { width: 100%; border-collapse: collapse; margin: .3em 0; font-size: .9em; }
caption { text-align: left; font-weight: 600; }
th, td { text-align: left; font-weight: normal; padding: .1em .4em .1em 0; }
tr { border-bottom: 1px solid var(--line); }
.cited { margin: .2em 0; padding-left: 1.2em; font-size: .9em; }
pre.bibtex { columns: 2 16rem; font-size: .7em; line-height: 1.25; white-space: pre-wrap; margin: .3em 0; }
code { font-size: .85em; }
@media (prefers-color-scheme: dark) { @media screen {
  :root { --ink: #e6edf3; --soft: #a8b3bd; --line: #3d444d; --accent: #6cb2ff; }
  body { background: #14181d; }
} }
@page { size: A4; margin: 12mm; }
@media print {
  body { font-size: 9.5px; }
  main { max-width: none; padding: 0; }
  .columns { grid-template-columns: 1fr 1fr; }
  figure, table, li { break-inside: avoid; }
}
"""
