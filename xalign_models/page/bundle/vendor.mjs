export { html, render } from "htm/preact";
export { useState, useEffect, useMemo, useRef } from "preact/hooks";
export { unzlibSync } from "fflate";
export { plot, dot, link, ruleX, line, text, scale } from "@observablehq/plot";
