// Checks the built site in headless Chromium, as a reader sees it: on a laptop, a tablet and a phone,
// with the light and the dark theme. make test-site runs it.
//
//   node site/check.mjs SITE [PICTURES]
//
// SITE is the folder of the built site, and SITE_BASE its path on its host. With PICTURES, it writes
// a picture of each page into that folder. CHROMIUM is the browser; Google Chrome works too.
import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import http from 'node:http'
import os from 'node:os'
import path from 'node:path'

const [site, pictures] = process.argv.slice(2)
const base = process.env.SITE_BASE || '/'
const widths = [1400, 800, 390] // a laptop, a tablet and a phone, in CSS pixels
const themes = ['light', 'dark']

// The first result of the search must be on the page that defines the term. 'limits' is what a
// reader of the first page looks for, not one of the many limits in other pages.
const searches = [
  ['limits', ''],
  ['HPA', 'integrations'],
  ['min-on-demand', 'tuning'],
]

const types = {
  '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.json': 'application/json',
  '.woff2': 'font/woff2', '.png': 'image/png',
}

// serve serves the site on a local port, and returns its address.
async function serve() {
  const server = http.createServer((request, response) => {
    let name = decodeURIComponent(new URL(request.url, 'http://localhost').pathname)
    name = name.startsWith(base) ? name.slice(base.length) : 'not-found'
    if (name === '' || name.endsWith('/')) name += 'index.html'
    try {
      const content = readFileSync(path.join(site, name))
      response.writeHead(200, { 'Content-Type': types[path.extname(name)] ?? 'application/octet-stream' })
      response.end(content)
    } catch {
      response.writeHead(404)
      response.end()
    }
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { server, address: `http://127.0.0.1:${server.address().port}${base}` }
}

// startBrowser starts Chromium and returns a function that sends it a command of the DevTools
// protocol. Commands and answers are JSON, each ended by a zero byte, on the file descriptors 3 and 4.
function startBrowser(profile) {
  // The pages are our own, and in containers root has no sandbox.
  const args = ['--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--remote-debugging-pipe', `--user-data-dir=${profile}`]
  const program = process.env.CHROMIUM || 'chromium'
  const browser = spawn(program, args, { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] })
  const pending = new Map()
  const ended = (reason) => {
    for (const { reject } of pending.values()) reject(new Error(reason))
  }
  browser.stdio[3].on('error', () => {}) // the browser has ended, which the next two events report
  browser.on('error', (err) => ended(`${err.message}: install Debian's package chromium, or set CHROMIUM to the path of a browser`))
  browser.on('exit', (code) => ended(`${program} ended with status ${code}`))
  let id = 0
  let input = Buffer.alloc(0)
  browser.stdio[4].on('data', (data) => {
    input = Buffer.concat([input, data])
    for (let end = input.indexOf(0); end >= 0; end = input.indexOf(0)) {
      const message = JSON.parse(input.subarray(0, end).toString())
      input = input.subarray(end + 1)
      const request = pending.get(message.id)
      if (request === undefined) continue
      pending.delete(message.id)
      if (message.error) request.reject(new Error(`${request.method}: ${message.error.message}`))
      else request.resolve(message.result)
    }
  })
  const send = (method, params = {}, sessionId) => new Promise((resolve, reject) => {
    pending.set(++id, { method, resolve, reject })
    browser.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`)
  })
  return { browser, send }
}

// openTab returns a tab of the browser: functions that send a command, load a page and run a function in it.
async function openTab(send) {
  const { targetId } = await send('Target.createTarget', { url: 'about:blank' })
  const { sessionId } = await send('Target.attachToTarget', { targetId, flatten: true })
  const command = (method, params) => send(method, params, sessionId)
  const run = async (f, ...args) => {
    const expression = `(${f})(...${JSON.stringify(args)})`
    const { result, exceptionDetails } = await command('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true })
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text)
    return result.value
  }
  const load = async (url) => {
    await command('Page.navigate', { url })
    await poll(`${url} is loaded`, () => run(isLoaded, url).catch(() => false)) // the old page may end meanwhile
  }
  return { command, run, load }
}

// poll waits until the condition holds, and returns its value.
async function poll(what, condition) {
  const deadline = Date.now() + 60_000
  while (Date.now() < deadline) {
    const value = await condition()
    if (value) return value
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  throw new Error(`waited 60 s until ${what}`)
}

// The following functions run in the page.

// isLoaded reports whether the page of this address is complete: its scripts run, its fonts and
// pictures are there.
function isLoaded(url) {
  const at = (href) => href.replace(/#.*/, '').replace(/\.html$/, '').replace(/\/index$/, '/')
  if (at(location.href) !== at(url) || document.readyState !== 'complete' || !document.querySelector('#app')?.__vue_app__) return false
  for (const image of document.images) image.loading = 'eager'
  return document.fonts.status === 'loaded' && [...document.images].every((image) => image.complete)
}

// hasTheme reports whether the page has this width and theme.
function hasTheme(width, theme) {
  return document.documentElement.clientWidth === width && document.documentElement.classList.contains('dark') === (theme === 'dark')
}

// findClipped returns what a reader cannot see, whole or by scrolling: content of table cells and
// blocks that is wider than they are, and that no element around them scrolls.
function findClipped() {
  const width = document.documentElement.clientWidth // innerWidth grows with the content on a phone
  const scrolls = (element) => {
    for (let e = element; e !== null; e = e.parentElement) {
      if (['auto', 'scroll'].includes(getComputedStyle(e).overflowX)) return e.getBoundingClientRect().right <= width + 1
    }
    return false
  }
  const found = []
  for (const cell of document.querySelectorAll('.vp-doc th, .vp-doc td')) {
    const box = cell.getBoundingClientRect()
    const wide = cell.scrollWidth > cell.clientWidth
    const outside = box.right > width + 1 || box.left < 0
    if (wide || (outside && !scrolls(cell))) found.push(`table cell "${cell.textContent.slice(0, 40)}"`)
  }
  for (const block of document.querySelectorAll('.vp-doc :is(p, li, h1, h2, h3, h4, pre, figure, table)')) {
    const box = block.getBoundingClientRect()
    if (box.right > width + 1 && !scrolls(block.parentElement)) found.push(`${block.tagName} "${block.textContent.slice(0, 40)}"`)
  }
  if (document.documentElement.scrollWidth > width) found.push(`the page is ${document.documentElement.scrollWidth} px wide`)
  return found
}

// findBroken returns the pictures that the browser cannot show.
function findBroken() {
  return [...document.images].filter((image) => image.naturalWidth === 0).map((image) => `picture ${image.src} cannot be shown`)
}

// search returns the addresses of the results for this text, best first.
async function search(text) {
  const wait = async (selector) => {
    for (let i = 0; i < 500; i++) {
      const element = document.querySelector(selector)
      if (element) return element
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
    throw new Error(`no ${selector} after searching ${text}`)
  }
  if (!document.querySelector('.VPLocalSearchBox')) (await wait('#local-search button')).click()
  const input = await wait('#localsearch-input')
  for (const words of ['', text]) {
    input.value = words
    input.dispatchEvent(new Event('input', { bubbles: true }))
    await new Promise((resolve) => setTimeout(resolve, 500)) // the box waits for more input
  }
  await wait('.VPLocalSearchBox .results a.result')
  return [...document.querySelectorAll('.VPLocalSearchBox a.result')].map((a) => a.getAttribute('href'))
}

// checkPages shows each page at each width with each theme, and returns what is wrong.
async function checkPages(tab, address) {
  const pages = readdirSync(site, { recursive: true }).filter((file) => file.endsWith('.html') && file !== '404.html').sort()
  const errors = []
  for (const page of pages) {
    await tab.load(address + page)
    for (const width of widths) {
      await tab.command('Emulation.setDeviceMetricsOverride', { width, height: 844, deviceScaleFactor: 1, mobile: width < 600 })
      for (const theme of themes) {
        await tab.command('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: theme }] })
        await poll(`${page} has the ${theme} theme`, () => tab.run(hasTheme, width, theme))
        for (const error of await tab.run(findClipped)) errors.push(`${page} at ${width} px, ${theme}: ${error}`)
        if (pictures) await picture(tab, path.join(pictures, `${page.replace('.html', '').replaceAll('/', '-')}-${width}-${theme}.png`))
      }
    }
    for (const error of await tab.run(findBroken)) errors.push(`${page}: ${error}`)
  }
  console.log(`${pages.length} pages, ${widths.join(', ')} px, ${themes.join(' and ')}: ${errors.length} clipped or broken`)
  return errors
}

async function picture(tab, file) {
  const { cssContentSize } = await tab.command('Page.getLayoutMetrics')
  const clip = { ...cssContentSize, height: Math.min(cssContentSize.height, 16000), scale: 1 } // the browser's limit
  const { data } = await tab.command('Page.captureScreenshot', { captureBeyondViewport: true, clip })
  writeFileSync(file, Buffer.from(data, 'base64'))
}

// checkSearch returns the searches whose first result is not on the expected page.
async function checkSearch(tab, address) {
  await tab.command('Emulation.setDeviceMetricsOverride', { width: widths[0], height: 844, deviceScaleFactor: 1, mobile: false })
  await tab.load(address)
  const errors = []
  for (const [text, want] of searches) {
    const results = await tab.run(search, text)
    console.log(`search for "${text}": ${results.slice(0, 5).join(' ')}`)
    if (results[0].replace(/#.*/, '').replace(/(index)?\.html$/, '') !== base + want) {
      errors.push(`search for "${text}": the first result is ${results[0]}, want a heading of ${base}${want}`)
    }
  }
  return errors
}

if (pictures) mkdirSync(pictures, { recursive: true })
const profile = mkdtempSync(path.join(os.tmpdir(), 'site-check-'))
const { server, address } = await serve()
const { browser, send } = startBrowser(profile)
try {
  const tab = await openTab(send)
  const errors = [...await checkSearch(tab, address), ...await checkPages(tab, address)]
  for (const error of errors) console.error(`site: ${error}`)
  process.exitCode = errors.length > 0 ? 1 : 0
} catch (err) {
  console.error(`site: ${err.message}`)
  process.exitCode = 1
} finally {
  if (browser.kill()) await new Promise((resolve) => browser.once('exit', resolve)) // it uses its profile until then
  server.close()
  server.closeAllConnections()
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 })
}
