// The site is docs/ as it is: each page has the path of its Markdown file, and links between pages
// are the relative links that also work on GitHub. This file adds what Markdown lacks: the sections,
// the first screen, the menu of versions, and links to files outside docs/.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'

const root = fileURLToPath(new URL('../..', import.meta.url))
const docs = path.join(root, 'site/docs')
const repository = 'https://github.com/spot-aware-scheduler/spot-aware-scheduler'
const tagline = 'Run Kubernetes workloads on spot nodes as far as is safe, and no further'

// hack/site.sh sets these variables.
const base = process.env.SITE_BASE ?? '/' // the path of this version on its host
const version = process.env.SITE_VERSION ?? 'main' // the branch or tag
const releases = (process.env.SITE_RELEASES ?? '').split(' ').filter(Boolean)

// Every page of docs/ except its README, which is the home page, is in one section.
const sections = {
  Concepts: ['architecture', 'alternatives', 'glossary'],
  'First week': ['adoption', 'on-demand', 'disruption-budgets', 'clouds', 'gitops', 'integrations', 'rehearsal', 'uninstall'],
  Tasks: [
    'install', 'any-scheduler', 'opt-in', 'tuning', 'kubectl-spot', 'monitoring', 'operations', 'troubleshooting', 'coexistence', 'autoscalers',
    'upgrading',
  ],
  Reference: ['versions', 'reference/configuration', 'reference/kubectl-spot', 'metrics', 'events'],
  Results: ['demo', 'results', 'results/figures'],
  Design: [
    'design/placement', 'design/controller', 'design/availability', 'design/throughput', 'design/gang', 'design/jobs',
    'design/extender', 'design/costs', 'design/replay', 'design/packages',
  ],
}
checkSections()

export default defineConfig({
  title: 'spot-aware-scheduler',
  description: tagline,
  lang: 'en',
  base,
  srcDir: 'docs',
  outDir: '../dist/site',
  rewrites: { 'README.md': 'index.md' },
  head: [['link', { rel: 'icon', type: 'image/svg+xml', href: `${base}favicon.svg` }]],
  markdown: {
    anchor: { slugify },
    config(md) {
      md.core.ruler.push('outside-docs', linkOutside)
      md.core.ruler.push('cells', markCells)
      md.core.ruler.push('figures', captionImages)
      const code = md.renderer.rules.code_inline
      md.renderer.rules.code_inline = (...args) => breakNames(code(...args))
    },
  },
  // site/docs is a link to docs/. With its own path, pages find Vue in site/node_modules.
  vite: { publicDir: path.join(root, 'site/public'), resolve: { preserveSymlinks: true } },
  transformPageData(page) {
    if (page.relativePath === 'index.md') Object.assign(page.frontmatter, frontPage)
  },
  themeConfig: {
    nav: [
      ...Object.entries(sections).map(([text, pages]) => ({ text, link: link(pages[0]), activeMatch: `^/(${pages.join('|')})` })),
      { text: label(version), items: versions() },
    ],
    sidebar: Object.entries(sections).map(([text, pages]) => ({
      text, collapsed: false, items: pages.map((page) => ({ text: title(page), link: link(page) })),
    })),
    outline: { level: [2, 3] },
    search: { provider: 'local', options: { miniSearch: { options: { tokenize }, searchOptions: { boostDocument } } } },
    socialLinks: [{ icon: 'github', link: repository }],
    editLink: { pattern: `${repository}/edit/main/docs/:path`, text: 'Edit this page' },
    footer: { message: 'Apache License 2.0' },
  },
})

const frontPage = {
  layout: 'home',
  hero: {
    name: 'spot-aware-scheduler',
    tagline,
    actions: [
      { theme: 'brand', text: 'Install', link: link('install') },
      { theme: 'alt', text: 'How it works', link: link('architecture') },
      { theme: 'alt', text: 'Results', link: link('results') },
    ],
  },
}

// link returns the link to a page. It throws an error if the page does not exist: VitePress does not
// check the links in this file.
function link(page) {
  if (!existsSync(path.join(docs, `${page}.md`))) throw new Error(`site/.vitepress/config.mjs: link to ${page}: no such page`)
  return `/${page}`
}

// title returns the first heading of a page.
function title(page) {
  return readFileSync(path.join(docs, `${page}.md`), 'utf8').match(/^# (.*)$/m)[1]
}

// checkSections throws an error unless the sections contain all pages of docs/, and only these.
function checkSections() {
  const listed = Object.values(sections).flat()
  const found = readdirSync(docs, { recursive: true }).filter((file) => file.endsWith('.md')).map((file) => file.slice(0, -3))
  const missing = found.filter((page) => page !== 'README' && !listed.includes(page))
  const unknown = listed.filter((page) => !found.includes(page))
  if (missing.length + unknown.length > 0) {
    throw new Error(`sections in site/.vitepress/config.mjs: missing pages of docs/: [${missing}]; pages that do not exist: [${unknown}]`)
  }
}

function label(version) {
  return version === 'main' ? 'latest (main)' : version
}

// versions returns the menu of versions. Each is an application of its own: the target makes the
// browser load it. Releases are in folders of the latest version.
function versions() {
  const latest = version === 'main' ? '/' : '/../'
  const items = [{ text: label('main'), link: latest, target: '_self' }]
  items.push(...releases.map((release) => ({ text: release, link: `${latest}${release}/`, target: '_self' })))
  return releases.length > 0 ? items : [{ text: 'There is no release yet', items }]
}

// slugify returns the anchor that GitHub gives to a heading.
function slugify(heading) {
  return heading.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-')
}

// linkOutside turns relative links to files outside docs/ into links to the repository. It throws an
// error if the file does not exist.
function linkOutside(state) {
  for (const token of state.tokens.flatMap((block) => block.children ?? [])) {
    const href = token.type === 'link_open' ? token.attrGet('href') : ''
    if (!href.startsWith('.')) continue
    const [target, anchor] = href.split('#')
    const page = path.relative(docs, state.env.path)
    const file = path.join('docs', path.dirname(page), target)
    if (file.startsWith('docs/')) continue
    if (!existsSync(path.join(root, file))) throw new Error(`docs/${page}: link to ${href}: no such file`)
    const kind = statSync(path.join(root, file)).isDirectory() ? 'tree' : 'blob'
    token.attrSet('href', `${repository}/${kind}/${version}/${file}${anchor ? `#${anchor}` : ''}`)
  }
}

// markCells gives table cells with sentences the class prose, so that the style can widen them, and
// cells with figures such as "+3.6 % (+2.2 to +5.2)" the class figure, so that they are one line.
function markCells(state) {
  state.tokens.forEach((token, i) => {
    if (token.type !== 'td_open') return
    const { content } = state.tokens[i + 1]
    if (content.length > 60) token.attrJoin('class', 'prose')
    if (/^[-+]?\d[^,;]{0,30}$/.test(content)) token.attrJoin('class', 'figure')
  })
}

// breakNames lets a line break after the separators of a long name, so that the names of metrics and
// fields do not fill the screen of a phone.
function breakNames(html) {
  return html.length > 34 ? html.replace(/([a-z0-9][_./])(?=[a-z])/gi, '$1<wbr>') : html
}

// captionImages turns a paragraph of images into a row of figures, whose captions are the texts of
// the images.
function captionImages(state) {
  state.tokens.forEach((token, i) => {
    const children = (token.children ?? []).filter((child) => child.type !== 'softbreak')
    if (children.length === 0 || !children.every((child) => child.type === 'image')) return
    // A paragraph of HTML cannot contain figures.
    state.tokens[i - 1].tag = state.tokens[i + 1].tag = 'div'
    state.tokens[i - 1].attrJoin('class', 'figures')
    const tag = (name, nesting) => new state.Token(`${name}_${nesting > 0 ? 'open' : 'close'}`, name, nesting)
    token.children = children.flatMap((image) => [
      tag('figure', 1), image, tag('figcaption', 1), ...image.children, tag('figcaption', -1), tag('figure', -1),
    ])
  })
}

// The next two functions also run in the browser, so they use nothing from outside.

// tokenize returns the words of a text for the search. A name such as min-on-demand is one word in
// addition to its parts: a page with the name is a better result than a page with the parts.
function tokenize(text) {
  const names = text.match(/[\p{L}\p{N}]+([-_./][\p{L}\p{N}]+)+/gu) ?? []
  return [...text.split(/[\n\r\p{Z}\p{P}]+/u), ...names]
}

// boostDocument returns the weight of a page in the search. The pages that define terms for users
// come before the reasons for the design and generated pages.
function boostDocument(id) {
  const page = id.replace(/#.*/, '')
  if (/\/(design|reference|results)\//.test(page)) return 0.5
  return /\/(tuning\.html)?$/.test(page) ? 2 : 1 // the overview and the settings
}
