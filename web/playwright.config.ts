import { defineConfig } from "@playwright/test";

// The manager is started by test/webui, which says where it is.
export default defineConfig({
  testDir: "e2e",
  reporter: "line",
  workers: 1,
  timeout: 60_000,
  use: {
    baseURL: process.env.WEIR_URL,
    ignoreHTTPSErrors: true, // its certificate is of the cluster's own CA
    launchOptions: { executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] },
  },
});
