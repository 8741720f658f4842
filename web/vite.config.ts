import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// One script and one sheet: the page is small, and a stranger's requests are counted.
export default defineConfig({
  base: "/ui/",
  plugins: [svelte({ compilerOptions: { css: "external" } })],
  build: {
    outDir: "../internal/webui/dist",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 300,
    cssCodeSplit: false,
  },
});
