export { html, render } from "htm/preact";
export { useState, useEffect, useMemo, useRef } from "preact/hooks";
export { plot, dot, link, ruleX, line, text, scale } from "@observablehq/plot";
